//! Where the guest's kernel comes from: a Debian package of the cloud flavour,
//! downloaded and unpacked into a cache, never installed.
//!
//! Invariant: a directory in the cache is complete; it appears there by a
//! rename once its `vmlinux` has been extracted.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{LabError, Result};

/// A kernel ready to boot.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// Its version as in the package's name (`6.1.0-56`), or the path that was
    /// asked for.
    pub version: String,
    /// The uncompressed kernel image, an ELF file.
    pub vmlinux: PathBuf,
}

const FLAVOUR: &str = "-cloud-amd64";
/// From the least to the best. Newer releases split the image off into
/// `linux-binary-*`, on which a now empty `linux-image-*` depends; signed and
/// unsigned images boot alike.
const PREFIXES: [&str; 3] = ["linux-image-", "linux-binary-unsigned-", "linux-binary-"];
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const DEFAULT_MIRROR: &str = "http://deb.debian.org/debian";

/// `$XDG_CACHE_HOME/evenly/lab`, or below `~/.cache`.
pub fn default_cache_dir() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))
        .ok_or_else(|| {
            LabError::Options(
                "no place for the kernel cache: neither XDG_CACHE_HOME nor HOME is set".into(),
            )
        })?;
    Ok(base.join("evenly").join("lab"))
}

/// Finds the newest kernel whose version begins with `pattern` (`6.1`, `6.16`,
/// `6.1.0-50`): in the cache, else in this machine's package sources, else in
/// Debian 12 and trixie-backports. A pattern with a `/` is the path of a kernel
/// image, compressed or not.
///
/// # Errors
/// [`LabError::Unavailable`] when there is no such kernel to be had.
pub fn obtain(pattern: &str, cache: &Path) -> Result<Kernel> {
    if pattern.contains('/') {
        return from_path(Path::new(pattern), cache);
    }
    let kernels = cache.join("kernels");
    if let Some(kernel) = newest_cached(pattern, &kernels) {
        return Ok(kernel);
    }
    fs::create_dir_all(&kernels).map_err(LabError::file(&kernels))?;
    let download = Apt::host(&kernels);
    let mut candidates = candidates(&download.package_names()?, pattern);
    let mut apt = download;
    if candidates.is_empty() {
        apt = Apt::own(cache)?;
        candidates = self::candidates(&apt.package_names()?, pattern);
    }
    let mut failure = String::new();
    for (package, version) in candidates.iter().rev().take(3) {
        let temporary = tempfile::tempdir_in(&kernels).map_err(LabError::file(&kernels))?;
        let deb = match apt.download(package, temporary.path()) {
            Ok(deb) => deb,
            Err(error) => {
                failure = format!("; {package}: {error}");
                continue;
            }
        };
        let root = temporary.path().join("root");
        program(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&root))?;
        let Some(image) = first_with_prefix(&root.join("boot"), "vmlinuz-") else {
            failure = format!("; {package} holds no boot/vmlinuz-*");
            continue;
        };
        let ready = temporary.path().join("ready");
        fs::create_dir(&ready).map_err(LabError::file(&ready))?;
        write_vmlinux(&image, &ready.join("vmlinux"))?;
        if let Some(config) = first_with_prefix(&root.join("boot"), "config-") {
            fs::copy(&config, ready.join("config")).map_err(LabError::file(&config))?;
        }
        let destination = kernels.join(version);
        match fs::rename(&ready, &destination) {
            // Another lab was faster: its copy is as good.
            Err(_) if destination.join("vmlinux").exists() => {}
            result => result.map_err(LabError::file(&destination))?,
        }
        return Ok(Kernel { version: version.clone(), vmlinux: destination.join("vmlinux") });
    }
    Err(LabError::Unavailable(format!(
        "no kernel package linux-image-{pattern}*{FLAVOUR} could be had{failure}; see \
         `apt-cache search 'linux-image.*{FLAVOUR}'` for other versions, or name a kernel image \
         by its path"
    )))
}

fn from_path(image: &Path, cache: &Path) -> Result<Kernel> {
    let data = fs::read(image).map_err(LabError::file(image))?;
    let version = image.display().to_string();
    if data.starts_with(b"\x7fELF") {
        return Ok(Kernel { version, vmlinux: image.to_owned() });
    }
    let directory = cache.join("images");
    fs::create_dir_all(&directory).map_err(LabError::file(&directory))?;
    let name = image.file_name().unwrap_or(OsStr::new("kernel"));
    let vmlinux = directory.join(name);
    write_vmlinux(image, &vmlinux)?;
    Ok(Kernel { version, vmlinux })
}

fn newest_cached(pattern: &str, kernels: &Path) -> Option<Kernel> {
    let version = fs::read_dir(kernels)
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| version_matches(name, pattern))
        .filter(|name| kernels.join(name).join("vmlinux").exists())
        .max_by(|a, b| compare_versions(a, b))?;
    let vmlinux = kernels.join(&version).join("vmlinux");
    Some(Kernel { version, vmlinux })
}

fn first_with_prefix(directory: &Path, prefix: &str) -> Option<PathBuf> {
    fs::read_dir(directory)
        .ok()?
        .flatten()
        .find(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path())
}

/// Packages that match, as (name, version), the best last.
pub(crate) fn candidates(names: &str, pattern: &str) -> Vec<(String, String)> {
    let mut found: Vec<(usize, &str, &str)> = names
        .lines()
        .filter_map(|name| {
            let rest = name.trim().strip_suffix(FLAVOUR)?;
            let (rank, version) = PREFIXES
                .iter()
                .enumerate()
                .find_map(|(rank, prefix)| Some((rank, rest.strip_prefix(prefix)?)))?;
            // `linux-image-6.12-cloud-amd64` is a meta-package.
            let is_image = version.matches('.').count() >= 2;
            (is_image && version_matches(version, pattern)).then_some((rank, version, name.trim()))
        })
        .collect();
    found.sort_by(|a, b| compare_versions(a.1, b.1).then(a.0.cmp(&b.0)));
    found.into_iter().map(|(_, version, name)| (name.to_owned(), version.to_owned())).collect()
}

fn version_matches(version: &str, pattern: &str) -> bool {
    version.starts_with(|c: char| c.is_ascii_digit())
        && version
            .strip_prefix(pattern)
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Compares runs of digits as numbers, everything else as text.
fn compare_versions(a: &str, b: &str) -> Ordering {
    fn parts(version: &str) -> Vec<(u64, &str)> {
        version
            .split_inclusive(|c: char| !c.is_ascii_digit())
            .map(|part| {
                let digits = part.trim_end_matches(|c: char| !c.is_ascii_digit());
                (digits.parse().unwrap_or(0), &part[digits.len()..])
            })
            .collect()
    }
    parts(a).cmp(&parts(b))
}

/// Ways to ask apt: with this machine's configuration, or with a state folder
/// and sources of our own.
struct Apt {
    options: Vec<String>,
    working_dir: PathBuf,
}

impl Apt {
    fn host(working_dir: &Path) -> Apt {
        Apt { options: vec!["-oAPT::Sandbox::User=".into()], working_dir: working_dir.to_owned() }
    }

    fn own(cache: &Path) -> Result<Apt> {
        let state = cache.join("apt");
        for directory in ["lists/partial", "cache/archives/partial"] {
            let path = state.join(directory);
            fs::create_dir_all(&path).map_err(LabError::file(&path))?;
        }
        if !Path::new(KEYRING).exists() {
            return Err(LabError::Unavailable(format!(
                "{KEYRING} is missing, which proves Debian's packages; needed: \
                 apt-get install debian-archive-keyring"
            )));
        }
        let mirror = host_mirror().unwrap_or_else(|| DEFAULT_MIRROR.into());
        let sources = state.join("sources.list");
        let lines = [
            format!("deb [signed-by={KEYRING}] {mirror} bookworm main\n"),
            format!("deb [signed-by={KEYRING}] {mirror}-security bookworm-security main\n"),
            format!("deb [signed-by={KEYRING}] {mirror} trixie-backports main\n"),
        ];
        fs::write(&sources, lines.concat()).map_err(LabError::file(&sources))?;
        let apt = Apt {
            options: vec![
                "-oAPT::Sandbox::User=".into(),
                "-oAPT::Architecture=amd64".into(),
                "-oAPT::Architectures::=amd64".into(),
                "-oAcquire::Languages=none".into(),
                format!("-oDir::Etc::sourcelist={}", sources.display()),
                "-oDir::Etc::sourceparts=/dev/null".into(),
                format!("-oDir::State::Lists={}", state.join("lists").display()),
                "-oDir::State::status=/dev/null".into(),
                format!("-oDir::Cache={}", state.join("cache").display()),
            ],
            working_dir: state,
        };
        // One suite out of reach must not hide the others; a package that is
        // then not found says what is missing.
        let _ = program(apt.command("apt-get").args(["-qq", "update"]));
        Ok(apt)
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.args(&self.options).current_dir(&self.working_dir);
        command
    }

    fn package_names(&self) -> Result<String> {
        program(self.command("apt-cache").args(["pkgnames", "linux-"]))
    }

    fn download(&self, package: &str, into: &Path) -> Result<PathBuf> {
        program(self.command("apt-get").args(["-qq", "download", package]).current_dir(into))?;
        first_with_prefix(into, package).ok_or_else(|| {
            LabError::Unavailable(format!("apt-get download {package} left no file"))
        })
    }
}

fn host_mirror() -> Option<String> {
    let mut command = Command::new("apt-get");
    command.args(["indextargets", "--format", "$(ORIGIN)|$(SITE)", "Created-By: Packages"]);
    let targets = program(&mut command).ok()?;
    targets
        .lines()
        .filter_map(|line| line.strip_prefix("Debian|"))
        .find(|site| site.ends_with("/debian"))
        .map(str::to_owned)
}

/// Runs a program to its end and returns what it printed.
fn program(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.env("LC_ALL", "C").output().map_err(|error| {
        LabError::Unavailable(match error.kind() {
            io::ErrorKind::NotFound => {
                format!(
                    "the program {name} is missing; kernels come as Debian packages, which it reads"
                )
            }
            _ => format!("{name}: {error}"),
        })
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last = stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message");
    Err(LabError::Unavailable(format!("{name} ended with {}: {last}", output.status)))
}

fn write_vmlinux(image: &Path, vmlinux: &Path) -> Result<()> {
    let data = fs::read(image).map_err(LabError::file(image))?;
    let elf = extract(&data)
        .map_err(|reason| LabError::KernelImage { path: image.to_owned(), reason })?;
    fs::write(vmlinux, elf).map_err(LabError::file(vmlinux))
}

/// Takes the ELF kernel out of a bzImage (the x86 boot protocol, version 2.08
/// and later: `setup_sects` at 0x1f1, `payload_offset` and `payload_length` at
/// 0x248).
pub(crate) fn extract(image: &[u8]) -> std::result::Result<Vec<u8>, String> {
    if image.get(0x202..0x206) != Some(b"HdrS".as_slice()) {
        return Err("not a bzImage: no `HdrS` at 0x202".into());
    }
    let word = |at: usize| -> Option<usize> {
        let bytes: [u8; 4] = image.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    let payload = (|| {
        // The field is 0 for 4 in very old images.
        let sectors = match usize::from(*image.get(0x1f1)?) {
            0 => 4,
            sectors => sectors,
        };
        let start = (sectors + 1) * 512 + word(0x248)?;
        image.get(start..start.checked_add(word(0x24c)?)?)
    })()
    .ok_or("its payload lies outside the file")?;
    let elf = match payload.get(..4) {
        Some(b"\x28\xb5\x2f\xfd") => {
            let mut elf = Vec::new();
            ruzstd::decoding::StreamingDecoder::new(payload)
                .map_err(|error| format!("its zstd payload: {error}"))?
                .read_to_end(&mut elf)
                .map_err(|error| format!("its zstd payload: {error}"))?;
            elf
        }
        Some(b"\x02\x21\x4c\x18") => lz4_legacy(&payload[4..])?,
        magic => {
            return Err(format!(
                "its payload begins with {magic:02x?}; needed: zstd (28 b5 2f fd) or legacy LZ4 \
                 (02 21 4c 18)"
            ));
        }
    };
    if elf.starts_with(b"\x7fELF") { Ok(elf) } else { Err("its payload is not an ELF file".into()) }
}

/// The frame format of `lz4 -l`, which the kernel's build uses: blocks of at
/// most 8 MiB, each after its compressed size. The kernel appends the size of
/// the whole, which is no block.
fn lz4_legacy(mut rest: &[u8]) -> std::result::Result<Vec<u8>, String> {
    const BLOCK: usize = 8 << 20;
    let mut all = Vec::new();
    while let Some((size, tail)) = rest.split_first_chunk::<4>() {
        if tail.is_empty() {
            break;
        }
        let size = usize::try_from(u32::from_le_bytes(*size)).unwrap_or(usize::MAX);
        let block = tail
            .get(..size)
            .ok_or_else(|| format!("its LZ4 payload: a block of {size} bytes past its end"))?;
        let data = lz4_flex::block::decompress(block, BLOCK)
            .map_err(|error| format!("its LZ4 payload: {error}"))?;
        all.extend_from_slice(&data);
        rest = &tail[size..];
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `apt-cache pkgnames linux-` on Debian 12 and with trixie-backports.
    const NAMES: &str = "linux-image-6.1.0-9-cloud-amd64\nlinux-image-6.1.0-56-cloud-amd64\n\
        linux-image-6.1.0-56-amd64\nlinux-image-cloud-amd64\nlinux-image-6.12-cloud-amd64\n\
        linux-image-6.12.117+deb12-cloud-amd64\nlinux-image-6.16.3+deb13-cloud-amd64\n\
        linux-image-6.16.12+deb13-cloud-amd64\nlinux-image-6.19.14+deb13-cloud-amd64\n\
        linux-binary-6.19.14+deb13-cloud-amd64\nlinux-image-7.2.11+deb13-cloud-amd64-dbg\n\
        linux-binary-unsigned-7.2.11+deb13-cloud-amd64\nlinux-binary-7.2.11+deb13-cloud-amd64\n\
        linux-binary-unsigned-7.3.4+deb13-cloud-amd64\nlinux-headers-6.1.0-56-cloud-amd64\n";

    fn best(pattern: &str) -> Option<String> {
        candidates(NAMES, pattern).pop().map(|(name, _)| name)
    }

    #[test]
    fn picks_the_newest_image_of_a_pattern() {
        assert_eq!(best("6.1").as_deref(), Some("linux-image-6.1.0-56-cloud-amd64"));
        assert_eq!(best("6.1.0-9").as_deref(), Some("linux-image-6.1.0-9-cloud-amd64"));
        assert_eq!(best("6.16").as_deref(), Some("linux-image-6.16.12+deb13-cloud-amd64"));
        assert_eq!(best("6.12").as_deref(), Some("linux-image-6.12.117+deb12-cloud-amd64"));
        assert_eq!(best("5.10"), None);
    }

    #[test]
    fn prefers_the_package_that_holds_the_image() {
        assert_eq!(best("6.19").as_deref(), Some("linux-binary-6.19.14+deb13-cloud-amd64"));
        assert_eq!(best("7.2").as_deref(), Some("linux-binary-7.2.11+deb13-cloud-amd64"));
        assert_eq!(best("7.3").as_deref(), Some("linux-binary-unsigned-7.3.4+deb13-cloud-amd64"));
    }

    #[test]
    fn versions_compare_by_number() {
        assert_eq!(compare_versions("6.1.0-9", "6.1.0-56"), Ordering::Less);
        assert_eq!(compare_versions("6.16.12+deb13", "6.16.3+deb13"), Ordering::Greater);
        assert_eq!(compare_versions("6.1.0-56", "6.1.0-56"), Ordering::Equal);
    }

    fn bzimage(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 1024];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x24c..0x250].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
        image.extend_from_slice(payload);
        image
    }

    #[test]
    fn extracts_an_lz4_payload() {
        let elf = [b"\x7fELF".as_slice(), &[7; 5000]].concat();
        let block = lz4_flex::block::compress(&elf);
        let mut payload = b"\x02\x21\x4c\x18".to_vec();
        payload.extend_from_slice(&u32::try_from(block.len()).unwrap().to_le_bytes());
        payload.extend_from_slice(&block);
        payload.extend_from_slice(&u32::try_from(elf.len()).unwrap().to_le_bytes());
        assert_eq!(extract(&bzimage(&payload)), Ok(elf));
    }

    #[test]
    fn extracts_a_zstd_payload() {
        let elf = [b"\x7fELF".as_slice(), &[7; 5000]].concat();
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        let mut payload = ruzstd::encoding::compress_to_vec(elf.as_slice(), level);
        payload.extend_from_slice(&u32::try_from(elf.len()).unwrap().to_le_bytes());
        assert_eq!(extract(&bzimage(&payload)), Ok(elf));
    }

    #[test]
    fn refuses_what_is_no_kernel() {
        assert!(extract(b"MZ").unwrap_err().contains("HdrS"));
        let mut cut = bzimage(b"\x28\xb5\x2f\xfd");
        cut.truncate(1026);
        assert!(extract(&cut).unwrap_err().contains("outside"));
        assert!(extract(&bzimage(b"\x1f\x8b\x08\x00")).unwrap_err().contains("zstd"));
    }
}
