/* Exceptions that a handler of the program throws out of a loop that spins. A member of std::atomic would let none
 * pass. */
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sys/time.h>
#include <unistd.h>

static int flag;

static void throws(int)
{
	throw 7;
}

__attribute__((noipa)) static void spin()
{
	while (!__atomic_load_n(&flag, __ATOMIC_ACQUIRE))
		__builtin_ia32_pause();
}

int main()
{
	struct sigaction action = {};
	action.sa_handler = throws;
	action.sa_flags = SA_NODEFER;
	if (sigaction(SIGALRM, &action, nullptr))
		return 9;
	char byte;
	std::puts("ready");
	std::fflush(stdout);
	if (read(0, &byte, 1) != 1)
		return 9;
	int caught = 0;
	for (int i = 0; i < 50; i++) {
		itimerval timer = {};
		timer.it_value.tv_usec = 1000;
		setitimer(ITIMER_REAL, &timer, nullptr);
		try {
			spin();
		} catch (int what) {
			caught += what == 7;
		}
	}
	if (caught != 50)
		return 9;
	std::puts("done");
}
