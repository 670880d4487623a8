// Poisson's equation on the unit square, zero boundary, five-point stencil, n interior points per
// side, solved by Jacobi's method from zero; and the answer, known independently of any program. The
// right-hand side is chosen so that the discrete solution is u* = sin(pi x) sin(pi y). That is an
// eigenvector of the iteration with eigenvalue r = cos(pi h), so that after k sweeps the iterate is
// exactly (1 - r^k) u* and the residual has shrunk to r^k of what it was.
#ifndef WORKLOADS_POISSON_H
#define WORKLOADS_POISSON_H

#include <math.h>

#include "common.h"

struct poisson {
    double *mode;     // sin(pi i h) for i from 0 to n + 1; u* is a product of two of them
    double b;         // h^2 times the right-hand side is b u*, b = 4 (1 - r)
    double gap;       // 1 - r
    double shrunk;    // r^k
    double amplitude; // 1 - r^k
};

static inline struct poisson poisson_start(size_t n, uint64_t sweeps) {
    const double pi = acos(-1), h = 1 / (double)(n + 1);
    // Without the cancellation that cos(pi h) near 1 would bring.
    const double gap = 2 * pow(sin(pi * h / 2), 2), log_shrunk = (double)sweeps * log1p(-gap);
    struct poisson p = {
        .mode = checked_alloc(n + 2, sizeof *p.mode),
        .b = 4 * gap,
        .gap = gap,
        .shrunk = exp(log_shrunk),
        .amplitude = -expm1(log_shrunk),
    };
    for (size_t i = 1; i <= n; i++) p.mode[i] = sin(pi * (double)i * h);
    return p;
}

// How far `found` at this point is from the answer; no number where it is none.
static inline double poisson_error(const struct poisson *p, size_t row, size_t column, double found) {
    return fabs(found - p->amplitude * (p->mode[row] * p->mode[column]));
}

#endif
