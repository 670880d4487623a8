// An exception that leaves a loop in one thread ends it in the other, too.
#include <evenly/loops.h>

#include <cstdio>
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
		return "ended";
	} catch (const std::exception &error) {
		return error.what();
	}
}

int main()
{
	evenly_loops_on_error(quiet);
	evenly_team *team = evenly_team_new(2);
	for (bool throws : {false, true}) {
		evenly_region *region = evenly_region_new(team, "sweep", EVENLY_FIXED, EVENLY_INDEPENDENT);
		std::string second;
		std::thread thread([&] { second = carries_out(region, 1, throws); });
		std::string first = carries_out(region, 0, false);
		thread.join();
		std::printf("%s, %s\n", first.c_str(), second.c_str());
		evenly_region_free(region);
	}
	evenly_team_free(team);
}
