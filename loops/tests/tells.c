/* A loop of two threads, of which the second sleeps in each iteration, and how the program goes on after it: tells INSTANCES WAY */
#include <evenly/loops.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ITERATIONS = 64, TEAMS = 300 };
static int sleeps = 1;

struct part {
    evenly_region *region;
    size_t thread;
    int instances;
};

static void *carry_out(void *given)
{
    const struct part *part = given;
    for (int instance = 0; instance < part->instances; instance++) {
        evenly_loop *loop = evenly_begin(part->region, part->thread, 0, ITERATIONS, 1);
        int64_t lb, ub, stride;
        while (evenly_next_task(loop, &lb, &ub, &stride))
            for (int64_t i = lb; i < ub; i += stride)
                if (part->thread == 1 && sleeps)
                    usleep(1000);
    }
    return NULL;
}

static evenly_team *team;
static evenly_region *region;

static void run(const char *name, int instances)
{
    team = evenly_team_new(2);
    region = evenly_region_new(team, name, EVENLY_FIXED, EVENLY_INDEPENDENT);
    evenly_region_policy(region, "rp");
    struct part parts[2] = {{region, 0, instances}, {region, 1, instances}};
    pthread_t other;
    if (pthread_create(&other, NULL, carry_out, &parts[1]))
        abort();
    carry_out(&parts[0]);
    pthread_join(other, NULL);
}

/* A loop over the same data comes for the first time when threads are known to differ, as the first did not when it divided them. */
static void run_two(void)
{
    static double data[ITERATIONS * 8];
    team = evenly_team_new(2);
    evenly_region *loops[2];
    const char *const names[] = {"first", "second"};
    for (int i = 0; i < 2; i++) {
        loops[i] = evenly_region_new(team, names[i], EVENLY_FIXED, EVENLY_STENCIL);
        evenly_region_policy(loops[i], "rp");
        evenly_region_uses(loops[i], EVENLY_WRITES, data, sizeof(double), 8, 0);
        struct part parts[2] = {{loops[i], 0, 4}, {loops[i], 1, 4}};
        pthread_t other;
        if (pthread_create(&other, NULL, carry_out, &parts[1]))
            abort();
        carry_out(&parts[0]);
        pthread_join(other, NULL);
    }
    evenly_region_free(loops[1]);
    region = loops[0];
}

static void end(void)
{
    evenly_region_free(region);
    evenly_team_free(team);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return EXIT_FAILURE;
    const int instances = atoi(argv[1]);
    const char *way = argv[2];
    if (!strcmp(way, "shares"))
        run_two();
    else
        run("sweep \"1\"", instances);
    printf("%ld\n", (long)getpid());
    fflush(stdout);
    if (!strcmp(way, "killed"))
        kill(getpid(), SIGKILL);
    if (!strcmp(way, "exits"))
        exit(0);
    end();
    if (!strcmp(way, "executes"))
        return execl(argv[0], argv[0], argv[1], "frees", (char *)NULL);
    sleeps = strcmp(way, "many") != 0;
    if (!sleeps)
        for (int i = 0; i < TEAMS; i++, end())
            run("sweep \"1\"", 1);
    if (!strcmp(way, "forks")) {
        const pid_t child = fork();
        if (child == 0) {
            run("child", 2);
            exit(0);
        }
        int status;
        return waitpid(child, &status, 0) != child || status != 0;
    }
    return EXIT_SUCCESS;
}
