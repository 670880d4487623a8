//! Real MPI programs, of Open MPI and of MPICH: which of both are here, the programs built for them, and
//! how they are started.

#![allow(dead_code, unreachable_pub, reason = "shared by several tests")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

/// An MPI, named as Debian names it beside another.
#[derive(Clone, Copy)]
pub struct Mpi {
    /// The ending of its commands, as in `mpirun.NAME`.
    pub name: &'static str,
    /// As evenly says it.
    pub said: &'static str,
}

pub const OPEN_MPI: Mpi = Mpi { name: "openmpi", said: "Open MPI" };
pub const MPICH: Mpi = Mpi { name: "mpich", said: "MPICH" };
pub const MPIS: [Mpi; 2] = [OPEN_MPI, MPICH];

/// Ranks that the programs are for.
pub const N: u64 = 4;

/// The MPIs that are here.
pub fn here() -> Vec<Mpi> {
    MPIS.into_iter().filter(|mpi| mpi.is_here()).collect()
}

impl Mpi {
    /// Whether it is here; false is a skip.
    pub fn is_here(self) -> bool {
        let version = Command::new(self.tool("mpicc")).arg("--version").output();
        let here = version.is_ok_and(|o| o.status.success());
        if !here {
            evenly_testing::skip(self.name, format!("{} is not installed", self.tool("mpicc")));
        }
        here
    }

    /// A program of it.
    pub fn tool(self, name: &str) -> String {
        format!("{name}.{}", self.name)
    }

    /// The program in a form, built once in a run of the tests.
    pub fn program(self, form: &str) -> String {
        static BUILT: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
        let workload = ["../../../workloads/mpi_stencil.c", "../../../workloads/common.c"];
        let metbench = [
            "../../../workloads/metbench.c",
            "../../../workloads/kernel.c",
            "../../../workloads/common.c",
        ];
        let rate = ["../../../workloads/mpi_rate.c"];
        let (compiler, sources, option) = match form {
            "c" => ("mpicc", &["pattern.c"][..], "-pthread"),
            "pairs" => ("mpicc", &["pairs.c"][..], "-pthread"),
            "server" => ("mpicc", &["server.c"][..], "-pthread"),
            "partners" => ("mpicc", &["partners.c"][..], "-pthread"),
            "mpi" => ("mpif90", &["pattern.F90"][..], "-UF08"),
            "f08" => ("mpif90", &["pattern.F90"][..], "-DF08"),
            "stencil" => ("mpicc", &workload[..], "-D_GNU_SOURCE"),
            "metbench" => ("mpicc", &metbench[..], "-D_GNU_SOURCE"),
            "rate" => ("mpicc", &rate[..], "-D_GNU_SOURCE"),
            other => panic!("{other}"),
        };
        let name = format!("pattern-{form}-{}", self.name);
        let build = || {
            let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&name);
            let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mpi");
            // Other test programs build them too.
            let part = out.with_extension(format!("{}", std::process::id()));
            let output = Command::new(self.tool(compiler))
                // Without optimisation: compilers of Fortran know nothing of one-sided messages.
                .args(["-O0", option, "-o"])
                .arg(&part)
                .args(sources.iter().map(|source| here.join(source)))
                .arg("-lm")
                .output()
                .unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            fs::rename(&part, &out).unwrap();
            out.to_str().unwrap().to_owned()
        };
        let mut built = BUILT.lock().unwrap_or_else(|e| e.into_inner());
        built.entry(name.clone()).or_insert_with(build).clone()
    }

    /// The launcher's words before these.
    pub fn launch(self, program: &[&str]) -> Vec<String> {
        let launcher = [self.tool("mpirun"), "-n".to_owned(), N.to_string()];
        launcher.into_iter().chain(program.iter().map(|w| (*w).to_owned())).collect()
    }
}

/// What lets launchers run here: as root, and more ranks than CPUs. Open MPI's usual way of one-sided
/// messages fails now and then where containers forbid process_vm_writev(2).
/// Launchers that hang end their program after 5 minutes.
pub const ENVIRONMENT: [(&str, &str); 7] = [
    ("MPIEXEC_TIMEOUT", "300"),
    ("OMPI_MCA_osc", "pt2pt"),
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    ("OMPI_MCA_hwloc_base_binding_policy", "none"),
    ("OMPI_MCA_mpi_yield_when_idle", "1"),
];
