// Loops by oneTBB's affinity partitioner: each part of a loop goes to the thread that had it the last time, unless another thread
// has nothing left to do and steals it.
#include "for_each.h"

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_scheduler_observer.h>

#include <sched.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

namespace {

std::vector<int> allowed_cpus() {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set)) {
        std::perror("sched_getaffinity");
        std::exit(EXIT_FAILURE);
    }
    std::vector<int> cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set))
            cpus.push_back(cpu);
    return cpus;
}

// Binds each thread to one CPU, as OMP_PROC_BIND does, unless that is false.
class Bound : public tbb::task_scheduler_observer {
  public:
    explicit Bound(tbb::task_arena &arena) : tbb::task_scheduler_observer(arena), cpus(allowed_cpus()) {
        const char *bind = std::getenv("OMP_PROC_BIND");
        observe(!bind || std::strcmp(bind, "false"));
    }

    void on_scheduler_entry(bool) override {
        // Threads come in again and again, the caller with each loop; hardly ever with another number.
        static thread_local int bound = -1;
        const int number = tbb::this_task_arena::current_thread_index();
        if (number == bound)
            return;
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(cpus[static_cast<std::size_t>(number) % cpus.size()], &set);
        if (sched_setaffinity(0, sizeof set, &set)) {
            std::perror("sched_setaffinity");
            std::exit(EXIT_FAILURE);
        }
        bound = number;
    }

  private:
    const std::vector<int> cpus;
};

struct Pool {
    explicit Pool(int threads)
        // Without it there are no more threads than CPUs.
        : limit(tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(threads)), arena(threads), bound(arena) {}

    tbb::global_control limit;
    tbb::task_arena arena;
    Bound bound;
    std::map<int, tbb::affinity_partitioner> partitioners; // of each loop
};

} // namespace

void for_each(int threads, int n, int64_t lower, int64_t upper, void (*body)(int64_t lower, int64_t upper)) {
    // Never destroyed, as threads of oneTBB may call the observer after the end of main.
    static Pool &pool = *new Pool(threads);
    pool.arena.execute([&] {
        const auto part = [body](const tbb::blocked_range<int64_t> &range) { body(range.begin(), range.end()); };
        tbb::parallel_for(tbb::blocked_range<int64_t>(lower, upper), part, pool.partitioners[n]);
    });
}
