// The header as C++ reads it. For tests/c.rs.
#include "evenly_mapper.h"

int main() {
    const double loads[] = {1, 1}, factors[] = {1};
    const uint32_t present[] = {0, 0}, core_node[] = {0, 0};
    evenly_map_problem problem = evenly_map_problem();
    problem.struct_size = sizeof problem;
    problem.tasks = 2;
    problem.loads_s = loads;
    problem.present = present;
    problem.cores = 2;
    problem.core_node = core_node;
    problem.nodes = 1;
    problem.factors = factors;
    evenly_map_options options;
    evenly_map_options_init(&options);
    evenly_map_objectives after;
    uint32_t core[2];
    int status = evenly_map(&problem, &options, core, nullptr, &after, nullptr, 0);
    return status != EVENLY_MAP_OK || core[0] == core[1] || after.makespan_s != 1;
}
