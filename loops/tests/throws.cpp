// An exception that leaves a loop in one thread ends it in the other, too. Integers are reduced in all their digits.
#include <evenly/loops.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

static void quiet(const char *) {}

static std::string carries_out(evenly_region *region, size_t thread, bool throws)
{
	try {
		evenly::loop loop(region, thread, 0, 100);
		int64_t lb, ub, stride;
		while (loop.next(lb, ub, stride))
			if (throws)
				throw std::runtime_error("its own");
		// More digits than a double has.
		const int64_t large = (INT64_C(1) << 60) + 1;
		if (loop.reduce(EVENLY_MAX, large) != large || loop.reduce(EVENLY_SUM, 0.5) != 1 || loop.reduce(EVENLY_SUM, 2) != 4)
			return "reduced to something else";
		// More than fits into 63 bits.
		const uint64_t most = UINT64_MAX, middle = (UINT64_C(1) << 63) + thread;
		if (loop.reduce(EVENLY_MIN, thread ? most : 5) != 5 || loop.reduce(EVENLY_MAX, thread ? most - 1 : 5) != most - 1 ||
		    loop.reduce(EVENLY_MIN, middle) != middle - thread || loop.reduce(EVENLY_SUM, most) != most - 1 ||
		    loop.reduce(EVENLY_MIN, thread ? UINT32_MAX : 7u) != 7 || loop.reduce(EVENLY_MIN, thread ? -1LL : 7) != -1)
			return "reduced to something else";
		return "ended";
	} catch (const std::exception &error) {
		return error.what();
	}
}

// An object that is replaced by the next is destroyed after that has begun.
static int64_t in_steps()
{
	evenly_team *team = evenly_team_new(1);
	evenly_region *region = evenly_region_new(team, "steps", EVENLY_FIXED, EVENLY_INDEPENDENT);
	std::unique_ptr<evenly::loop> loop;
	int64_t lb, ub, stride, all = 0;
	for (int step = 0; step < 3; step++) {
		loop = std::make_unique<evenly::loop>(region, 0, 0, 10);
		while (loop->next(lb, ub, stride))
			all += ub - lb;
		if (loop->next(lb, ub, stride))
			return -1;
	}
	loop.reset();
	evenly_region_free(region);
	evenly_team_free(team);
	return all;
}

int main()
{
	evenly_loops_on_error(quiet);
	std::printf("%d\n", static_cast<int>(in_steps()));
	evenly_team *team = evenly_team_new(2);
	for (bool throws : {false, true}) {
		evenly_region *region = evenly_region_new(team, "sweep", EVENLY_FIXED, EVENLY_INDEPENDENT);
		evenly_region_policy(region, "static"); // else the first thread may take all tasks before the second one has begun
		std::string second;
		std::thread thread([&] { second = carries_out(region, 1, throws); });
		std::string first = carries_out(region, 0, false);
		thread.join();
		std::printf("%s, %s\n", first.c_str(), second.c_str());
		evenly_region_free(region);
	}
	evenly_team_free(team);
}
