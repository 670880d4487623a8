//! The paper's six kernels (section 3.2 and Table 1), as what they do to processors and memory.
//!
//! The CPU time of an iteration follows from the rate of barriers on 16 free processors in Table 1, less what memory and barriers
//! take here. The paper's times of sequential runs are no measure of it: by them Water and Gauss would be 23 to 26 times as fast
//! on 16 processors, whose caches together hold what that of one does not, and Matrix 9 times.

use super::program::{Everywhere, LoopProgram, ParallelLoop, Updates};
use evenly_iterations::{Access, ArrayId, Bounds, Load, Region, Section, Use};
use evenly_model::Nanos;

/// A kernel.
#[derive(Debug, Clone, Copy)]
pub struct LoopKernel {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Barriers in a second, on 16 free processors (Table 1).
    pub barriers_per_s: f64,
    /// What it does.
    pub program: fn() -> LoopProgram,
}

/// All of them, in the order of the paper.
pub const LOOP_KERNELS: [LoopKernel; 6] = [
    LoopKernel {
        name: "matrix",
        about: "product of matrices, 512 squared",
        barriers_per_s: 3.17,
        program: matrix,
    },
    LoopKernel {
        name: "jacobi",
        about: "mean of neighbours, 2048 squared",
        barriers_per_s: 68.02,
        program: jacobi,
    },
    LoopKernel {
        name: "sor",
        about: "red and black relaxation, 4096 times 1024",
        barriers_per_s: 70.01,
        program: sor,
    },
    LoopKernel {
        name: "shallow",
        about: "shallow water, 13 arrays of 2048 squared",
        barriers_per_s: 10.03,
        program: shallow,
    },
    LoopKernel {
        name: "water",
        about: "forces between 9,261 molecules, with locks",
        barriers_per_s: 2.46,
        program: water,
    },
    LoopKernel {
        name: "gauss",
        about: "elimination with pivoting, 2048 squared",
        barriers_per_s: 258.19,
        program: gauss,
    },
];

/// The kernel of this name.
#[must_use]
pub fn loop_kernel(name: &str) -> Option<&'static LoopKernel> {
    LOOP_KERNELS.iter().find(|kernel| kernel.name == name)
}

/// A loop over rows, of which each has its place in arrays.
struct Rows {
    access: Access,
    /// Elements of a row, and bytes of each.
    elements: i64,
    element_bytes: u64,
    sections: Vec<Section>,
}

impl Rows {
    fn new(access: Access, elements: i64, element_bytes: u64) -> Self {
        Self { access, elements, element_bytes, sections: Vec::new() }
    }

    /// It uses row i, plus each of these.
    fn uses(mut self, used: Use, arrays: &[u32], rows: &[i64]) -> Self {
        for &array in arrays {
            for row in rows {
                self.sections.push(Section {
                    array: ArrayId(array),
                    used,
                    element_bytes: self.element_bytes,
                    coefficient: self.elements,
                    constant: row * self.elements,
                });
            }
        }
        self
    }

    fn over(self, name: &str, lower: i64, upper: i64, work: Nanos) -> ParallelLoop {
        let region = Region { load: Load::Fixed, access: self.access, sections: self.sections };
        ParallelLoop {
            name: name.into(),
            region,
            bounds: Bounds { lower, upper, stride: 1 },
            work,
            shrinks: false,
            everywhere: Vec::new(),
            updates: None,
            alone: None,
        }
    }
}

fn all_of(array: u32, bytes: u64) -> Vec<Everywhere> {
    vec![Everywhere { array: ArrayId(array), bytes: 0..bytes, moves: 0 }]
}

const NEIGHBOURS: [i64; 3] = [-1, 0, 1];

fn matrix() -> LoopProgram {
    let bytes = 512 * 512 * 8;
    let rows = Rows::new(Access::Independent, 512, 8);
    let rows = rows.uses(Use::Writes, &[2], &[0]).uses(Use::Reads, &[0], &[0]);
    let product = rows.over("product", 0, 512, Nanos::from_micros(9_855));
    let product = ParallelLoop { everywhere: all_of(1, bytes), ..product };
    LoopProgram { arrays: vec![bytes; 3], loops: vec![product], steps: 204 }
}

fn jacobi() -> LoopProgram {
    let n = 2_048;
    let rows = || Rows::new(Access::Stencil, n, 4);
    let mean = rows().uses(Use::Writes, &[1], &[0]).uses(Use::Reads, &[0], &NEIGHBOURS);
    let copy = rows().uses(Use::Writes, &[0], &[0]).uses(Use::Reads, &[1], &[0]);
    let us = Nanos::from_micros;
    let loops = vec![mean.over("mean", 1, n - 1, us(148)), copy.over("copy", 1, n - 1, us(79))];
    LoopProgram { arrays: vec![n as u64 * n as u64 * 4; 2], loops, steps: 340 }
}

fn sor() -> LoopProgram {
    let (rows, half) = (4_096, 512);
    let colour = |name, own, other| {
        let uses = Rows::new(Access::Stencil, half, 8);
        let uses = uses.uses(Use::Writes, &[own], &[0]).uses(Use::Reads, &[other], &NEIGHBOURS);
        uses.over(name, 1, rows - 1, Nanos::from_micros(54))
    };
    let loops = vec![colour("red", 0, 1), colour("black", 1, 0)];
    LoopProgram { arrays: vec![rows as u64 * half as u64 * 8; 2], loops, steps: 350 }
}

fn shallow() -> LoopProgram {
    let n = 2_048;
    let [u, v, p, u_new, v_new, p_new, u_old, v_old, p_old, cu, cv, z, h] =
        std::array::from_fn(|array| array as u32);
    let us = Nanos::from_micros;
    let rows = || Rows::new(Access::Stencil, n, 8);
    let fluxes =
        rows().uses(Use::Writes, &[cu, cv, z, h], &[0]).uses(Use::Reads, &[u, v, p], &[-1, 0]);
    let next = rows()
        .uses(Use::Writes, &[u_new, v_new, p_new], &[0])
        .uses(Use::Reads, &[u_old, v_old, p_old], &[0])
        .uses(Use::Reads, &[cu, cv, z, h], &[0, 1]);
    let smooth = rows().uses(Use::Writes, &[u, v, p, u_old, v_old, p_old], &[0]).uses(
        Use::Reads,
        &[u_new, v_new, p_new],
        &[0],
    );
    // The last row becomes the first, an element for each iteration.
    let border = |name, arrays: &[u32]| {
        let along = Rows::new(Access::Unknown, 1, 8);
        let along = along.uses(Use::Writes, arrays, &[0]).uses(Use::Reads, arrays, &[(n - 1) * n]);
        along.over(name, 0, n, Nanos(40))
    };
    let loops = vec![
        fluxes.over("fluxes", 0, n, us(1_522)),
        border("border of fluxes", &[cu, cv, z, h]),
        next.over("next", 0, n, us(1_522)),
        border("border of next", &[u_new, v_new, p_new]),
        smooth.over("smooth", 0, n, us(785)),
    ];
    LoopProgram { arrays: vec![n as u64 * n as u64 * 8; 13], loops, steps: 20 }
}

fn water() -> LoopProgram {
    let (n, bytes) = (9_261, 672);
    let molecules = || Rows::new(Access::Independent, 1, bytes);
    let forces = molecules().uses(Use::Reads, &[0], &[0]);
    let forces = ParallelLoop {
        everywhere: all_of(0, n as u64 * bytes),
        updates: Some(Updates {
            array: ArrayId(0),
            element_bytes: bytes,
            hold: Nanos::from_micros(5),
        }),
        ..forces.over("forces", 0, n, Nanos::from_micros(5_600))
    };
    let own =
        |name| molecules().uses(Use::Writes, &[0], &[0]).over(name, 0, n, Nanos::from_micros(20));
    let mut loops = vec![own("predict"), own("intra"), forces];
    loops.extend(["correct", "border", "kinetic", "potential", "scale", "clear"].map(own));
    LoopProgram { arrays: vec![n as u64 * bytes], loops, steps: 8 }
}

fn gauss() -> LoopProgram {
    let n = 2_048;
    let row_bytes = n as u64 * 8;
    let rows = Rows::new(Access::Independent, n, 8).uses(Use::Writes, &[0], &[0]);
    let eliminate = rows.over("eliminate", 1, n, Nanos::from_micros(157));
    let eliminate = ParallelLoop {
        region: Region { load: Load::Variable, ..eliminate.region },
        shrinks: true,
        everywhere: vec![Everywhere { array: ArrayId(0), bytes: 0..row_bytes, moves: row_bytes }],
        alone: Some(Nanos::from_micros(20)),
        ..eliminate
    };
    let steps = n as u64 - 1;
    LoopProgram { arrays: vec![n as u64 * row_bytes], loops: vec![eliminate], steps }
}
