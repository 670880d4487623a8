// Jacobi's method for Poisson's equation, as in jacobi.c, over MPI: ranks form a grid, each has a block of
// points, and after every sweep it gives the edges of its block to its neighbours. Rows of ranks have blocks of
// different heights (--uneven), so both loads and messages differ between ranks, and it matters which of them
// share a CPU or a host. The answer is that of poisson.h, whatever the number of ranks and wherever they run.
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common.h"
#include "poisson.h"

static void help(void) {
    printf("Usage: mpirun -n N %s [OPTIONS]\n"
           "Jacobi sweeps for Poisson's equation over MPI; a grid of ranks whose rows have blocks of\n"
           "different heights. Verifies the solution against its analytic value (exit status 1 if\n"
           "wrong), prints JSON.\n\n"
           "  --size N       interior points per side (default 600)\n"
           "  --sweeps K     sweeps (default 500)\n"
           "  --end-on FILE  fewer sweeps: no more than a hundred once FILE exists\n"
           "  --uneven F     how many times as high the highest blocks are as the lowest (default 3)\n"
           "  --output FILE  write the JSON to FILE instead of stdout\n"
           "  --help         this text\n\nExample: mpirun -n 8 %s --size 1000 --sweeps 200\n",
           program_invocation_short_name, program_invocation_short_name);
    exit(EXIT_SUCCESS);
}

// Where part i of `parts` begins of `whole` points, when the last part weighs `uneven` times the first and
// weights grow evenly in between.
static size_t begin_of(int i, int parts, size_t whole, double uneven) {
    double sum = 0, before = 0;
    for (int p = 0; p < parts; p++) {
        double weight = parts == 1 ? 1 : 1 + (uneven - 1) * p / (parts - 1);
        if (p < i) before += weight;
        sum += weight;
    }
    return (size_t)llround((double)whole * before / sum);
}

int main(int argc, char **argv) {
    enum { SIZE, SWEEPS, END_ON, UNEVEN, OUTPUT, HELP };
    static const struct option long_options[] = {
        {"size", required_argument, NULL, SIZE},     {"sweeps", required_argument, NULL, SWEEPS},
        {"end-on", required_argument, NULL, END_ON}, {"uneven", required_argument, NULL, UNEVEN},
        {"output", required_argument, NULL, OUTPUT}, {"help", no_argument, NULL, HELP},
        {0},
    };
    size_t n = 600;
    uint64_t sweeps = 500;
    double uneven = 3;
    const char *output = NULL, *end_sign = NULL;
    // Before MPI starts: bad input ends each rank by itself.
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        switch (c) {
        case SIZE: n = parse_u64("--size", optarg, 8, 30000); break;
        case SWEEPS: sweeps = parse_u64("--sweeps", optarg, 1, 1000000); break;
        case END_ON: end_sign = optarg; break;
        case UNEVEN: uneven = parse_double("--uneven", optarg, 1, 100); break;
        case OUTPUT: output = optarg; break;
        case HELP: help(); break;
        default: exit(EXIT_BAD_INPUT);
        }
    }
    no_more_arguments(argc, argv);

    MPI_Init(&argc, &argv);
    int ranks, self, shape[2] = {0, 0}, periodic[2] = {0, 0}, place[2];
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Dims_create(ranks, 2, shape);
    MPI_Comm grid;
    // Not reordered: where ranks run is for the mapping to say.
    MPI_Cart_create(MPI_COMM_WORLD, 2, shape, periodic, 0, &grid);
    MPI_Comm_rank(grid, &self);
    MPI_Cart_coords(grid, self, 2, place);
    int up, down, left, right;
    MPI_Cart_shift(grid, 0, 1, &up, &down);
    MPI_Cart_shift(grid, 1, 1, &left, &right);

    const size_t top = begin_of(place[0], shape[0], n, uneven);
    const size_t rows = begin_of(place[0] + 1, shape[0], n, uneven) - top;
    const size_t first = begin_of(place[1], shape[1], n, 1);
    const size_t columns = begin_of(place[1] + 1, shape[1], n, 1) - first;
    int fits = rows > 0 && columns > 0, all_fit;
    MPI_Allreduce(&fits, &all_fit, 1, MPI_INT, MPI_MIN, grid);
    if (!all_fit) {
        if (self == 0) fprintf(stderr, "%s: --size %zu is too small for %d ranks; give more points\n",
                               program_invocation_short_name, n, ranks);
        MPI_Finalize();
        return EXIT_BAD_INPUT;
    }
    const size_t width = columns + 2;
    double *grids[2] = {checked_alloc((rows + 2) * width, sizeof(double)),
                        checked_alloc((rows + 2) * width, sizeof(double))};
    struct poisson answer = poisson_start(n, sweeps);
    const double *mode = answer.mode, b = answer.b;
    MPI_Datatype column;
    MPI_Type_vector((int)rows, 1, (int)width, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);

    MPI_Barrier(grid);
    const double begun = MPI_Wtime(), cpu_begun = thread_cpu_s();
    for (uint64_t sweep = 0; sweep < sweeps; sweep++) {
        if (end_sign && sweep % 100 == 99) {
            int ends = self == 0 && access(end_sign, F_OK) == 0;
            MPI_Bcast(&ends, 1, MPI_INT, 0, grid);
            if (ends) sweeps = sweep + 1; // this one is the last
        }
        double *from = grids[sweep % 2], *to = grids[(sweep + 1) % 2];
        // The edges of the neighbours; at the border of the square nothing is received: zeros stay.
        double *middle = from + width;
        double *last_row = from + rows * width;
        MPI_Sendrecv(middle + 1, (int)columns, MPI_DOUBLE, up, 0, last_row + width + 1, (int)columns,
                     MPI_DOUBLE, down, 0, grid, MPI_STATUS_IGNORE);
        MPI_Sendrecv(last_row + 1, (int)columns, MPI_DOUBLE, down, 1, from + 1, (int)columns,
                     MPI_DOUBLE, up, 1, grid, MPI_STATUS_IGNORE);
        MPI_Sendrecv(middle + 1, 1, column, left, 2, middle + width - 1, 1, column, right, 2, grid,
                     MPI_STATUS_IGNORE);
        MPI_Sendrecv(middle + width - 2, 1, column, right, 3, middle, 1, column, left, 3, grid,
                     MPI_STATUS_IGNORE);
        for (size_t row = 1; row <= rows; row++) {
            const double *here = from + row * width;
            const double source = b * mode[top + row];
            for (size_t i = 1; i <= columns; i++)
                to[row * width + i] = 0.25 * (here[i - width] + here[i + width] + here[i - 1] +
                                              here[i + 1] + source * mode[first + i]);
        }
    }
    const double took = MPI_Wtime() - begun, cpu = thread_cpu_s() - cpu_begun;

    if (end_sign) answer = poisson_start(n, sweeps);
    const double *result = grids[sweeps % 2];
    double error = 0, most, makespan;
    for (size_t row = 1; row <= rows; row++)
        for (size_t i = 1; i <= columns; i++) {
            double off = poisson_error(&answer, top + row, first + i, result[row * width + i]);
            if (!(off <= error)) error = off; // also where it is no number
        }
    MPI_Allreduce(&error, &most, 1, MPI_DOUBLE, MPI_MAX, grid);
    MPI_Allreduce(&took, &makespan, 1, MPI_DOUBLE, MPI_MAX, grid);
    double *cpus = self == 0 ? checked_alloc((size_t)ranks, sizeof *cpus) : NULL;
    MPI_Gather(&cpu, 1, MPI_DOUBLE, cpus, 1, MPI_DOUBLE, 0, grid);
    const int verified = most < 1e-10;
    if (self == 0) {
        FILE *out = open_output(output);
        fprintf(out, "{\"workload\":\"mpi_stencil\",\"ranks\":%d,\"grid\":[%d,%d],\"size\":%zu,"
                     "\"sweeps\":%" PRIu64 ",\"uneven\":%g,\"makespan_s\":%.9f,\"error\":%g,"
                     "\"verified\":%s",
                ranks, shape[0], shape[1], n, sweeps, uneven, makespan, most,
                verified ? "true" : "false");
        fputc(',', out);
        json_seconds(out, "cpu_s", cpus, (size_t)ranks, 0);
        fprintf(out, "}\n");
        close_output(out);
    }
    MPI_Type_free(&column);
    MPI_Comm_free(&grid);
    MPI_Finalize();
    return verified ? EXIT_SUCCESS : EXIT_FAILURE;
}
