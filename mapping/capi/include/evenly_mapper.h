/*
 * evenly's mappers as a library: on which core each of many communicating tasks should run.
 *
 * Arrays in, an assignment out: what `evenly map` does, without files. Link with -levenly_mapper
 * (libevenly_mapper.so, or libevenly_mapper.a with -lpthread -ldl -lm). docs/map.md has an example.
 *
 * The library holds no state: every call stands for itself, and calls may come from any threads at
 * the same time. It starts no thread and reads and writes nothing but what it is given (a fault of
 * its own, EVENLY_MAP_FAULT, is also printed on standard error). It needs no initialisation.
 */
#ifndef EVENLY_MAPPER_H
#define EVENLY_MAPPER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What evenly_map returns. */
enum evenly_map_status {
    EVENLY_MAP_OK = 0,
    /* The input is wrong: a pointer is missing, a number is negative or none, an index too great. */
    EVENLY_MAP_INPUT = 1,
    /* There is no such algorithm. */
    EVENLY_MAP_ALGORITHM = 2,
    /* A fault in the library itself: nothing was assigned, and the caller can go on. */
    EVENLY_MAP_FAULT = 3
};

/* Tasks, which of them communicate, and the machine. Tasks, cores and nodes are numbered from 0, by their
 * places in the arrays. What may be NULL says so. Loads, sizes, messages and bytes are from 0 to 1e18,
 * speeds and factors from 1e-9 to 1e9, bandwidths from 1 to 1e18. Fields are only ever added, at the end: a
 * structure that ends before `cache_levels`, of a program built when there was nothing more, will do. */
struct evenly_map_problem {
    size_t struct_size;          /* sizeof(struct evenly_map_problem) */

    size_t tasks;                /* at least 1 */
    const double *loads_s;       /* of each task: CPU time in the window that was observed, seconds */
    const double *sizes_bytes;   /* what has to be moved with it; NULL: not known */
    const uint8_t *movable;      /* 0: it stays where it is; NULL: all may be moved */
    const uint32_t *present;     /* the core that it is on now */

    size_t edges;                /* may be 0 */
    const uint32_t *edge_from;   /* of each edge: the task that sends, */
    const uint32_t *edge_to;     /* the task that receives, */
    const double *edge_messages; /* messages in the window, */
    const double *edge_bytes;    /* bytes of all of them; NULL: not known */

    size_t cores;                /* at least 1 */
    const uint32_t *core_node;   /* of each core: its NUMA node */
    const double *core_speed;    /* 1 is the fastest kind; NULL: all are equal */

    size_t nodes;                /* at least 1 */
    const uint32_t *node_host;   /* of each node: its host; NULL: there is one host */
    const double *factors;       /* nodes x nodes, row by row: in row i, column j the latency of
                                    node i reading from node j over that of its own memory; 1 in
                                    the diagonal */
    const double *bandwidths;    /* nodes x nodes, row i, column j: bytes a second from node i to
                                    node j; NULL: not known, and copying costs nothing */

    size_t cache_levels;         /* levels of caches that cores share, 0 to 16; 0: nothing is said of
                                    them, and all cores of a node are equally far from each other */
    const double *cache_factors; /* of each level, from the innermost: latency between two cores that
                                    share such a cache over that of local memory, mostly below 1 */
    const uint32_t *core_caches; /* cores x cache_levels, row by row: which cache of each level the core
                                    has; those with the same number share it */
};

/* What can be chosen; evenly_map_options_init sets what is usual. Fields are only ever added, at the end:
 * a structure that ends before `beta`, of a program built when there was nothing more, will do. */
struct evenly_map_options {
    size_t struct_size;          /* sizeof(struct evenly_map_options) */
    const char *algorithm;       /* a name, see evenly_map_algorithm; NULL: nuco+ */
    double alpha;                /* what a message counts for, in seconds; below 0: scaled to load. What
                                    `evenly map --alpha latency` takes is the latency of local memory */
    uint64_t seed;               /* of those that draw random numbers */
    double time_limit_s;         /* how long those may search that search */
    double migration_worth_s;    /* nuco+: makespan that a migration must save; below 0: a millisecond over
                                    the number of cores that tasks are on at present */
    int64_t max_migrations;      /* nuco+: no more migrations than that, whatever else is asked for; below 0:
                                    no bound */
    double max_imbalance;        /* nuco+: no more imbalance than that (0.05: a makespan of 1.05
                                    times the mean load); below 0: no bound. Where it is not reached,
                                    evenly_map_bounds_kept tells */
    double tolerance;            /* refine: how far above the mean a core may be loaded, a share */
    double beta;                 /* nuco+: what a byte counts for, in seconds; 0: messages alone count;
                                    below 0: what a core reads its node's memory at while all others
                                    do, where bandwidths are known, else 5e-10 */
    double windows;              /* nuco+: windows over which a migration's cost is spread, each as
                                    long as the one that was observed; above 0 */
};

/* What an assignment is worth; smaller is better. */
struct evenly_map_objectives {
    double makespan_s;           /* the greatest load of a core, over its speed */
    double mean_load_s;          /* the mean load of the cores, which no assignment changes */
    double imbalance;            /* makespan over mean load, less 1 */
    double nuco_messages;        /* messages between cores, each times its factor */
    double remote_messages;      /* messages between NUMA nodes */
    double hop_bytes;            /* bytes times hops */
    size_t migrations;           /* tasks that are not where they were */
    double migrated_bytes;       /* their sizes */
};

/* The version of this interface: 1. A program built for another must not call evenly_map. */
#define EVENLY_MAP_VERSION 1
uint32_t evenly_map_version(void);

/* Writes the name of algorithm number i, from 0, into `name`, cut to `size` bytes with the closing 0
 * (may be NULL). Returns its length; 0 past the last. */
size_t evenly_map_algorithm(size_t i, char *name, size_t size);

/* Sets all options to what is usual, those of `evenly map`: as many as fit into `size` bytes. Does nothing
 * where that is less than what the first version of the interface had. */
void evenly_map_options_init_sized(struct evenly_map_options *options, size_t size);
/* The library has a function of this name, too, for programs that were built before there was `beta`. */
#define evenly_map_options_init(options) \
    evenly_map_options_init_sized((options), sizeof(struct evenly_map_options))

/*
 * Maps. `options` may be NULL: as evenly_map_options_init sets them. `assignment` has room for a core
 * for each task. `before` and `after` say what the present and the new assignment are worth; each may
 * be NULL. Where something is wrong, one line says what in `message` (cut to `message_size` bytes with
 * the closing 0; may be NULL), and neither assignment nor objectives are touched. Where all is well the
 * message is empty; where `max_imbalance` of nuco+ was not reached, it says what was, and the status is
 * EVENLY_MAP_OK all the same, as there is an assignment.
 */
int evenly_map(const struct evenly_map_problem *problem,
               const struct evenly_map_options *options,
               uint32_t *assignment,
               struct evenly_map_objectives *before,
               struct evenly_map_objectives *after,
               char *message,
               size_t message_size);

/* Whether an assignment keeps the bounds of these options (max_migrations, max_imbalance): 1 where it keeps all that
 * there are, 0 where one is not reached. `after` is what evenly_map said of it. `options` may be NULL: without bounds.
 * Options that evenly_map would refuse are kept by nothing. Of all algorithms only nuco+ aims at them. */
int evenly_map_bounds_kept(const struct evenly_map_options *options,
                           const struct evenly_map_objectives *after);

#ifdef __cplusplus
}
#endif

#endif
