// Maps the tasks of CSV files through the C interface. For tests/c.rs.
//   map layout                                     sizes and offsets of the structures
//   map wrong                                      what is refused, and how
//   map choices                                    what nuco+ makes of beta and windows; older programs
//   map bounds                                     what is told of bounds
//   map machines                                   what is made of speeds, hosts, bandwidths
//   map OBJECTS EDGES FACTORS NODES CORES NAME [FACTOR]
//                                                  id,pe of each task, as evenly map writes it; FACTOR: of
//                                                  caches that four cores share
// The cores are spread over the nodes in blocks; files have the columns of Charm++ dumps.
#include "evenly_mapper.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *need(void *p) {
    if (!p) { perror("map"); exit(1); }
    return p;
}

// The columns of these names, in one array of rows.
static double *columns(const char *path, int count, const char *const names[], size_t *rows) {
    FILE *file = need(fopen(path, "r"));
    char line[4096];
    int at[8];
    need(fgets(line, sizeof line, file));
    for (int c = 0; c < count; c++) at[c] = -1;
    int column = 0;
    for (char *word = strtok(line, ",\r\n"); word; word = strtok(NULL, ",\r\n"), column++)
        for (int c = 0; c < count; c++)
            if (!strcmp(word, names[c])) at[c] = column;
    for (int c = 0; c < count; c++)
        if (at[c] < 0) { fprintf(stderr, "%s: no column %s\n", path, names[c]); exit(1); }
    double *values = NULL;
    *rows = 0;
    while (fgets(line, sizeof line, file)) {
        values = need(realloc(values, (*rows + 1) * (size_t)count * sizeof *values));
        column = 0;
        for (char *word = strtok(line, ",\r\n"); word; word = strtok(NULL, ",\r\n"), column++)
            for (int c = 0; c < count; c++)
                if (at[c] == column) values[*rows * (size_t)count + (size_t)c] = strtod(word, NULL);
        (*rows)++;
    }
    fclose(file);
    return values;
}

#define SHOW(type, field) printf("%s %zu\n", #field, offsetof(struct type, field))

static int layout(void) {
    printf("problem %zu\n", sizeof(struct evenly_map_problem));
    SHOW(evenly_map_problem, loads_s); SHOW(evenly_map_problem, movable);
    SHOW(evenly_map_problem, present); SHOW(evenly_map_problem, edges);
    SHOW(evenly_map_problem, edge_bytes); SHOW(evenly_map_problem, cores);
    SHOW(evenly_map_problem, core_speed); SHOW(evenly_map_problem, nodes);
    SHOW(evenly_map_problem, bandwidths); SHOW(evenly_map_problem, cache_levels);
    SHOW(evenly_map_problem, core_caches);
    printf("options %zu\n", sizeof(struct evenly_map_options));
    SHOW(evenly_map_options, alpha); SHOW(evenly_map_options, seed);
    SHOW(evenly_map_options, max_migrations); SHOW(evenly_map_options, tolerance);
    SHOW(evenly_map_options, beta); SHOW(evenly_map_options, windows);
    printf("objectives %zu\n", sizeof(struct evenly_map_objectives));
    SHOW(evenly_map_objectives, hop_bytes); SHOW(evenly_map_objectives, migrations);
    SHOW(evenly_map_objectives, migrated_bytes);
    return 0;
}

static int wrong(void) {
    double loads[2] = {1, 1}, factors[1] = {1}, messages[1] = {1};
    uint32_t present[2] = {0, 0}, core_node[2] = {0, 0}, from[1] = {0}, to[1] = {1}, out[2] = {9, 9};
    struct evenly_map_problem fine = {.struct_size = sizeof fine, .tasks = 2, .loads_s = loads,
        .present = present, .edges = 1, .edge_from = from, .edge_to = to,
        .edge_messages = messages, .cores = 2, .core_node = core_node, .nodes = 1,
        .factors = factors};
    struct evenly_map_problem p;
    struct evenly_map_options o;
    struct evenly_map_objectives before = {0}, after = {0};
    char said[128];
    volatile double zero = 0;
    evenly_map_options_init(&o);
    evenly_map_options_init(NULL);
#define REFUSED(status) do { \
        int r = evenly_map(&p, &o, out, &before, &after, said, sizeof said); \
        assert(r == (status) && *said && out[0] == 9 && after.makespan_s == 0); \
        puts(said); } while (0)
    p = fine; p.struct_size = 8; REFUSED(EVENLY_MAP_INPUT);
    p = fine; p.tasks = 0; REFUSED(EVENLY_MAP_INPUT);
    p = fine; p.tasks = SIZE_MAX; REFUSED(EVENLY_MAP_INPUT);
    p = fine; p.loads_s = NULL; REFUSED(EVENLY_MAP_INPUT);
    p = fine; p.present = (const uint32_t *)((const char *)present + 1); REFUSED(EVENLY_MAP_INPUT);
    p = fine; p.edge_to = NULL; REFUSED(EVENLY_MAP_INPUT);
    p = fine; to[0] = 2; REFUSED(EVENLY_MAP_INPUT); to[0] = 1;
    p = fine; loads[1] = -1; REFUSED(EVENLY_MAP_INPUT); loads[1] = 1;
    double far[4] = {1, 1e308, 1, 1}, fast[4] = {1e308, 1, 1, 1}, speeds[2] = {1, 1e-308};
    p = fine; p.nodes = 2; p.factors = far; REFUSED(EVENLY_MAP_INPUT);
    far[1] = 1; p.bandwidths = fast; REFUSED(EVENLY_MAP_INPUT);
    p = fine; p.core_speed = speeds; REFUSED(EVENLY_MAP_INPUT);
    p = fine; messages[0] = 1e308; REFUSED(EVENLY_MAP_INPUT); messages[0] = 1;
    p = fine; o.algorithm = "best"; REFUSED(EVENLY_MAP_ALGORITHM);
    evenly_map_options_init(&o);
    o.tolerance = -1; REFUSED(EVENLY_MAP_INPUT);
    evenly_map_options_init(&o);
    o.windows = 0; REFUSED(EVENLY_MAP_INPUT);
    evenly_map_options_init(&o);
    o.beta = 0.0 / zero; REFUSED(EVENLY_MAP_INPUT);
    evenly_map_options_init(&o);
    o.alpha = 1e308; REFUSED(EVENLY_MAP_INPUT);
    /* A program that was built for more than the library has. */
    evenly_map_options_init_sized(&o, sizeof o);
    o.struct_size = sizeof o + 8; REFUSED(EVENLY_MAP_INPUT);
    evenly_map_options_init(&o);
    p = fine; p.cache_levels = 17; REFUSED(EVENLY_MAP_INPUT);
    p = fine; p.cache_levels = 1; p.cache_factors = factors; REFUSED(EVENLY_MAP_INPUT);
    assert(evenly_map(NULL, &o, out, NULL, NULL, NULL, 0) == EVENLY_MAP_INPUT);
    assert(evenly_map(&fine, NULL, NULL, NULL, NULL, said, sizeof said) == EVENLY_MAP_INPUT);
    /* A message that does not fit is cut. */
    memset(said, 'x', sizeof said);
    p = fine; p.cores = 0;
    assert(evenly_map(&p, &o, out, NULL, NULL, said, 9) == EVENLY_MAP_INPUT);
    assert(!strcmp(said, "cores is") && said[9] == 'x');
    /* The assignment may replace the present one. */
    assert(evenly_map(&fine, NULL, present, &before, &after, said, sizeof said) == EVENLY_MAP_OK);
    assert(!*said && present[0] != present[1] && before.makespan_s == 2 && after.makespan_s == 1);
    assert(after.migrations == 1 && evenly_map_version() == EVENLY_MAP_VERSION);
    return 0;
}

/* Programs that were built when the options ended with `tolerance` call the function, not the macro. */
#undef evenly_map_options_init
void evenly_map_options_init(struct evenly_map_options *options);

/* Two tasks that talk, on the first of two cores: whether one is moved. */
static int is_moved(double load, double bytes, const void *options) {
    double loads[2] = {load, load}, factors[1] = {1}, messages[1] = {1}, edge_bytes[1] = {bytes};
    uint32_t present[2] = {0, 0}, core_node[2] = {0, 0}, from[1] = {0}, to[1] = {1}, out[2] = {9, 9};
    struct evenly_map_problem p = {.struct_size = sizeof p, .tasks = 2, .loads_s = loads,
        .present = present, .edges = 1, .edge_from = from, .edge_to = to, .edge_messages = messages,
        .edge_bytes = edge_bytes, .cores = 2, .core_node = core_node, .nodes = 1, .factors = factors};
    char said[128];
    int r = evenly_map(&p, options, out, NULL, NULL, said, sizeof said);
    if (r) puts(said);
    assert(r == EVENLY_MAP_OK);
    return out[0] != out[1];
}

static int choices(void) {
    struct evenly_map_options o;
    evenly_map_options_init_sized(&o, sizeof o);
    assert(o.struct_size == sizeof o && o.beta < 0 && o.windows == 1);
    /* A migration that costs 1 ms saves 0.4 ms, but in each of 20 windows. */
    assert(!is_moved(4e-4, 0, &o) && is_moved(1, 0, &o));
    o.windows = 20;
    assert(is_moved(4e-4, 0, &o));
    o.windows = 1;
    /* What a GB takes from core to core would cost more than is saved, if bytes count. */
    assert(!is_moved(0.01, 1e9, &o));
    o.beta = 0;
    assert(is_moved(0.01, 1e9, &o));
    o.beta = 1e-12; /* 0.5 ms for each core, beside 10 ms that are saved */
    assert(is_moved(0.01, 1e9, &o));

    /* The structure as it was, and what stands behind it. */
    struct { char first[offsetof(struct evenly_map_options, beta)]; char behind[64]; } old;
    struct evenly_map_options *as_old = need(malloc(sizeof old));
    memset(as_old, 'x', sizeof old);
    evenly_map_options_init(as_old);
    memcpy(&old, as_old, sizeof old);
    for (size_t i = 0; i < sizeof old.behind; i++) assert(old.behind[i] == 'x');
    assert(as_old->struct_size == sizeof old.first && as_old->migration_worth_s < 0);
    assert(!is_moved(4e-4, 0, as_old) && is_moved(1, 0, as_old) && !is_moved(0.01, 1e9, as_old));
    /* Too short for anything: left as it is. Longer than ours: refused, not taken for what it is not. */
    memset(as_old, 'x', sizeof old);
    evenly_map_options_init_sized(as_old, sizeof old.first - 1);
    assert(*(char *)as_old == 'x');
    evenly_map_options_init_sized(as_old, sizeof(struct evenly_map_options) + 8);
    assert(as_old->struct_size == sizeof(struct evenly_map_options) + 8);
    evenly_map_options_init_sized(NULL, sizeof o);
    free(as_old);
    return 0;
}

/* Three equal tasks on core 0 of two: no better than 2 and 1, an imbalance of a third. */
static int bounds(void) {
    double loads[3] = {1, 1, 1}, factors[1] = {1};
    uint32_t present[3] = {0, 0, 0}, core_node[2] = {0, 0}, out[3];
    struct evenly_map_problem p = {.struct_size = sizeof p, .tasks = 3, .loads_s = loads,
        .present = present, .cores = 2, .core_node = core_node, .nodes = 1, .factors = factors};
    struct evenly_map_options o;
    struct evenly_map_objectives after;
    char said[128];
#define MAPPED() assert(evenly_map(&p, &o, out, NULL, &after, said, sizeof said) == EVENLY_MAP_OK)
    evenly_map_options_init_sized(&o, sizeof o);
    MAPPED();
    assert(!*said && evenly_map_bounds_kept(&o, &after) && evenly_map_bounds_kept(NULL, &after));
    o.max_imbalance = 0.4; MAPPED();
    assert(!*said && after.makespan_s == 2 && evenly_map_bounds_kept(&o, &after));
    /* An imbalance that is out of reach: there is an assignment all the same. */
    o.max_imbalance = 0.1; MAPPED();
    assert(after.makespan_s == 2 && !evenly_map_bounds_kept(&o, &after));
    assert(!strcmp(said, "an imbalance of 10.00 % was not reached: 33.33 % is the least that was found"));
    /* Migrations are kept to, whatever else is asked for. */
    o.max_migrations = 0; MAPPED();
    assert(after.migrations == 0 && *said && !evenly_map_bounds_kept(&o, &after));
    o.max_imbalance = -1; MAPPED();
    assert(!*said && evenly_map_bounds_kept(&o, &after));
    /* Others do not aim at them: nothing is said, but whoever asks is told. */
    o.algorithm = "refine"; MAPPED();
    assert(!*said && after.migrations == 1 && !evenly_map_bounds_kept(&o, &after));
    assert(!evenly_map_bounds_kept(&o, NULL));
    o.struct_size = 8;
    assert(!evenly_map_bounds_kept(&o, &after));
    return 0;
}

/* Tasks on core 0 of two; what came out. */
static struct evenly_map_objectives mapped(struct evenly_map_problem *p, uint32_t *out) {
    struct evenly_map_objectives after;
    char said[128];
    int r = evenly_map(p, NULL, out, NULL, &after, said, sizeof said);
    if (r) puts(said);
    assert(r == EVENLY_MAP_OK);
    return after;
}

static int machines(void) {
    double loads[3] = {1, 1, 1}, sizes[3] = {1e9, 1e9, 1e9}, one[1] = {1}, far[4] = {1, 2, 2, 1};
    double messages[1] = {5}, bytes[1] = {10}, speeds[2] = {1, 0.5};
    uint32_t present[3] = {0, 0, 0}, apart[2] = {0, 1}, core_node[2] = {0, 0}, two[2] = {0, 1};
    uint32_t from[1] = {0}, to[1] = {1}, hosts[2] = {0, 1}, out[4];
    uint8_t fixed[2] = {0, 0};
    struct evenly_map_problem p = {.struct_size = sizeof p, .tasks = 3, .loads_s = loads,
        .present = present, .cores = 2, .core_node = core_node, .core_speed = speeds, .nodes = 1,
        .factors = one};
    /* One that takes twice as long on the slow core, and two on the fast one. */
    assert(mapped(&p, out).makespan_s == 2 && out[0] + out[1] + out[2] == 1);
    speeds[1] = 0.25;
    assert(mapped(&p, out).makespan_s == 3 && out[0] + out[1] + out[2] == 0);

    /* A message between nodes: two hops, between hosts three. */
    struct evenly_map_problem q = {.struct_size = sizeof q, .tasks = 2, .loads_s = loads,
        .movable = fixed, .present = apart, .edges = 1, .edge_from = from, .edge_to = to,
        .edge_messages = messages, .edge_bytes = bytes, .cores = 2, .core_node = two, .nodes = 2,
        .factors = far};
    struct evenly_map_objectives after = mapped(&q, out);
    assert(after.hop_bytes == 20 && after.nuco_messages == 10 && after.remote_messages == 5);
    q.node_host = hosts;
    assert(mapped(&q, out).hop_bytes == 30);

    /* Two tasks on one node: a second is saved, and a GB takes a second or ten to the other node. */
    double bandwidths[4] = {1e10, 1e10, 1e10, 1e10};
    struct evenly_map_problem r = {.struct_size = sizeof r, .tasks = 2, .loads_s = loads,
        .sizes_bytes = sizes, .present = present, .cores = 2, .core_node = two, .nodes = 2,
        .factors = far, .bandwidths = bandwidths};
    after = mapped(&r, out);
    assert(after.migrations == 1 && after.migrated_bytes == 1e9 && after.makespan_s == 1);
    bandwidths[1] = bandwidths[2] = 1e8;
    assert(mapped(&r, out).migrations == 0);
    r.bandwidths = NULL;
    assert(mapped(&r, out).migrations == 1);

    /* The structure as it was, and what stands behind it. */
    p.struct_size = offsetof(struct evenly_map_problem, cache_levels);
    memset((char *)&p + p.struct_size, 'x', sizeof p - p.struct_size);
    assert(mapped(&p, out).makespan_s == 3);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "layout")) return layout();
    if (argc == 2 && !strcmp(argv[1], "wrong")) return wrong();
    if (argc == 2 && !strcmp(argv[1], "choices")) return choices();
    if (argc == 2 && !strcmp(argv[1], "bounds")) return bounds();
    if (argc == 2 && !strcmp(argv[1], "machines")) return machines();
    assert(argc == 7 || argc == 8);
    static const char *const of_objects[] = {"id", "load_s", "pe", "migratable"};
    static const char *const of_edges[] = {"from", "to", "messages", "bytes"};
    size_t tasks, edges;
    double *o = columns(argv[1], 4, of_objects, &tasks);
    double *e = columns(argv[2], 4, of_edges, &edges);
    size_t nodes = strtoul(argv[4], NULL, 10), cores = strtoul(argv[5], NULL, 10);

    double *loads = need(calloc(tasks, sizeof *loads));
    uint8_t *movable = need(calloc(tasks, 1));
    uint32_t *present = need(calloc(tasks, sizeof *present)), *out = need(calloc(tasks, sizeof *out));
    for (size_t t = 0; t < tasks; t++) {
        loads[t] = o[4 * t + 1];
        present[t] = (uint32_t)o[4 * t + 2];
        movable[t] = o[4 * t + 3] != 0;
    }
    // Numbers of tasks in the files are any; here they are places.
    uint32_t *from = need(calloc(edges, sizeof *from)), *to = need(calloc(edges, sizeof *to));
    double *messages = need(calloc(edges, sizeof *messages)), *bytes = need(calloc(edges, sizeof *bytes));
    for (size_t i = 0; i < edges; i++) {
        for (size_t t = 0; t < tasks; t++) {
            if (o[4 * t] == e[4 * i]) from[i] = (uint32_t)t;
            if (o[4 * t] == e[4 * i + 1]) to[i] = (uint32_t)t;
        }
        messages[i] = e[4 * i + 2];
        bytes[i] = e[4 * i + 3];
    }
    double *factors = need(calloc(nodes * nodes, sizeof *factors));
    FILE *file = need(fopen(argv[3], "r"));
    for (size_t i = 0; i < nodes * nodes; i++)
        if (fscanf(file, "%lf%*[,\n]", &factors[i]) != 1) { fputs("factors\n", stderr); return 1; }
    fclose(file);
    uint32_t *core_node = need(calloc(cores, sizeof *core_node));
    for (size_t c = 0; c < cores; c++) core_node[c] = (uint32_t)(c / (cores / nodes));

    struct evenly_map_problem problem = {.struct_size = sizeof problem, .tasks = tasks,
        .loads_s = loads, .movable = movable, .present = present, .edges = edges, .edge_from = from,
        .edge_to = to, .edge_messages = messages, .edge_bytes = bytes, .cores = cores,
        .core_node = core_node, .nodes = nodes, .factors = factors};
    uint32_t *core_caches = need(calloc(cores, sizeof *core_caches));
    for (size_t c = 0; c < cores; c++) core_caches[c] = (uint32_t)(c / 4);
    double cache_factor = argc == 8 ? strtod(argv[7], NULL) : 1;
    if (argc == 8) {
        problem.cache_levels = 1;
        problem.cache_factors = &cache_factor;
        problem.core_caches = core_caches;
    }
    struct evenly_map_options options;
    struct evenly_map_objectives after;
    char message[256];
    evenly_map_options_init_sized(&options, sizeof options);
    options.algorithm = argv[6];
    options.time_limit_s = 0; // so that the answer does not depend on the speed of the machine
    if (evenly_map(&problem, &options, out, NULL, &after, message, sizeof message)) {
        fprintf(stderr, "%s\n", message);
        return 1;
    }
    printf("id,pe\n");
    for (size_t t = 0; t < tasks; t++) printf("%.0f,%u\n", o[4 * t], (unsigned)out[t]);
    fprintf(stderr, "%.17g %.17g %zu\n", after.makespan_s, after.nuco_messages, after.migrations);
    free(o); free(e); free(loads); free(movable); free(present); free(out); free(from); free(to);
    free(messages); free(bytes); free(factors); free(core_node); free(core_caches);
    return 0;
}
