/*
 * How long a message takes between hosts: a ping-pong between every two hosts of an MPI job, one pair at a
 * time. `evenly topology --measure --network` builds it for the MPI whose launcher it is given, starts it
 * with that launcher, and reads the one file that it writes, of schema evenly.pingpong/1.
 *
 *   pingpong FILE
 *
 * Ranks are distinguished by the name of their host (gethostname, as launchers do); the first rank of each
 * host plays for it. Small messages give the latency: half a round trip, the mean of as many as take
 * SAMPLE_S, SAMPLES times. Large ones give the bandwidth.
 *
 * Invariant: while two ranks are measured, no other rank of the job computes or sends: they sleep until
 * their turn comes (a blocked MPI_Recv would spin, on a CPU that another rank may need).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <mpi.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	SMALL_BYTES = 8,
	LARGE_BYTES = 1 << 20,
	SAMPLES = 31,
	LARGE_SAMPLES = 7,
	/* Round trips that open the connection, and show how long one takes. */
	WARM_UP = 10,
	MOST_ROUNDS = 1000,
	MOST_LARGE_ROUNDS = 20,
	NAME_BYTES = 256,
	/* As evenly reads no more. */
	MOST_HOSTS = 256,
	/* The result is written by then. */
	LEAVE_S = 3,
};
static const double SAMPLE_S = 2e-3, LARGE_SAMPLE_S = 20e-3;

enum { TURN = 1, COUNT, BALL, RESULT };

struct result {
	double latency_s[SAMPLES];
	double bytes_per_s[LARGE_SAMPLES];
};

static int self, ranks;
static char *ball;

static void fail(const char *what, const char *name)
{
	fprintf(stderr, "evenly: ping-pong, rank %d: %s%s\n", self, what, name);
	MPI_Abort(MPI_COMM_WORLD, 1);
	exit(1);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *make(size_t n, size_t size)
{
	void *made = calloc(n, size);
	if (!made)
		fail("out of memory", "");
	return made;
}

/* Receives without spinning. */
static void receive(void *to, int count, MPI_Datatype type, int from, int tag)
{
	for (int there = 0; !there;) {
		MPI_Iprobe(from, tag, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
		if (!there)
			nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
	}
	MPI_Recv(to, count, type, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Seconds of a round trip, the mean of so many. */
static double rounds(int peer, bool serves, int bytes, int n)
{
	const double begun = now();
	for (int i = 0; i < n; i++) {
		if (serves)
			MPI_Send(ball, bytes, MPI_BYTE, peer, BALL, MPI_COMM_WORLD);
		MPI_Recv(ball, bytes, MPI_BYTE, peer, BALL, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (!serves)
			MPI_Send(ball, bytes, MPI_BYTE, peer, BALL, MPI_COMM_WORLD);
	}
	return (now() - begun) / n;
}

/* How many round trips a sample takes: the one that serves says it. */
static int agree(int peer, bool serves, double round_s, double sample_s, int most)
{
	int n = 0;
	if (!serves) {
		MPI_Recv(&n, 1, MPI_INT, peer, COUNT, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		return n;
	}
	n = round_s * most <= sample_s ? most : (int)(sample_s / round_s);
	n = n < 1 ? 1 : n;
	MPI_Send(&n, 1, MPI_INT, peer, COUNT, MPI_COMM_WORLD);
	return n;
}

static void play(int peer, bool serves, struct result *result)
{
	double round = rounds(peer, serves, SMALL_BYTES, WARM_UP);
	round = rounds(peer, serves, SMALL_BYTES, WARM_UP);
	int n = agree(peer, serves, round, SAMPLE_S, MOST_ROUNDS);
	for (int i = 0; i < SAMPLES; i++)
		result->latency_s[i] = rounds(peer, serves, SMALL_BYTES, n) / 2;
	round = rounds(peer, serves, LARGE_BYTES, 2);
	n = agree(peer, serves, round, LARGE_SAMPLE_S, MOST_LARGE_ROUNDS);
	for (int i = 0; i < LARGE_SAMPLES; i++)
		result->bytes_per_s[i] = LARGE_BYTES / (rounds(peer, serves, LARGE_BYTES, n) / 2);
}

static void print_numbers(FILE *out, const char *name, const double *numbers, int n)
{
	fprintf(out, "\"%s\":[", name);
	for (int i = 0; i < n; i++)
		fprintf(out, "%s%.9g", i ? "," : "", numbers[i]);
	fprintf(out, "]");
}

/* A string of JSON; what would need an escape is not needed. */
static void print_text(FILE *out, const char *text)
{
	fputc('"', out);
	for (; *text; text++)
		fputc((unsigned char)*text < ' ' || *text == '"' || *text == '\\' ? ' ' : *text, out);
	fputc('"', out);
}

/* Some MPI (MPICH 4.0.2 over UCX) now and then waits in MPI_Finalize for a rank that has gone. */
static void leave(int signal)
{
	(void)signal;
	_exit(0);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &self);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc != 2)
		fail("the name of a file is needed", "");
	ball = make(LARGE_BYTES, 1);
	char name[NAME_BYTES] = "";
	if (gethostname(name, sizeof name - 1))
		fail("gethostname: ", strerror(errno));
	char(*names)[NAME_BYTES] = make((size_t)ranks, NAME_BYTES);
	MPI_Allgather(name, NAME_BYTES, MPI_CHAR, names, NAME_BYTES, MPI_CHAR, MPI_COMM_WORLD);

	/* The first rank of each host, and how many there are. */
	int first[MOST_HOSTS] = { 0 }, members[MOST_HOSTS] = { 0 }, hosts = 0;
	for (int r = 0; r < ranks; r++) {
		int h = 0;
		while (h < hosts && strcmp(names[first[h]], names[r]))
			h++;
		if (h == MOST_HOSTS)
			fail("there are more hosts than are measured (256)", "");
		if (h == hosts) {
			first[hosts] = r;
			members[hosts++] = 0;
		}
		members[h]++;
	}

	const int pairs = hosts * (hosts - 1) / 2;
	struct result *results = make((size_t)(pairs ? pairs : 1), sizeof *results);
	const int doubles = sizeof *results / sizeof(double);
	int turn[2];
	if (self == 0) {
		/* It is the first rank of the first host. */
		struct result *result = results;
		for (int a = 0; a < hosts; a++)
			for (int b = a + 1; b < hosts; b++, result++) {
				turn[0] = first[a];
				turn[1] = first[b];
				MPI_Send(turn, 2, MPI_INT, first[b], TURN, MPI_COMM_WORLD);
				if (a == 0) {
					play(first[b], true, result);
					continue;
				}
				MPI_Send(turn, 2, MPI_INT, first[a], TURN, MPI_COMM_WORLD);
				receive(result, doubles, MPI_DOUBLE, first[a], RESULT);
			}
		turn[0] = turn[1] = -1;
		for (int r = 1; r < ranks; r++)
			MPI_Send(turn, 2, MPI_INT, r, TURN, MPI_COMM_WORLD);
	} else {
		for (;;) {
			receive(turn, 2, MPI_INT, 0, TURN);
			if (turn[0] < 0)
				break;
			const bool serves = self == turn[0];
			play(serves ? turn[1] : turn[0], serves, results);
			if (serves)
				MPI_Send(results, doubles, MPI_DOUBLE, 0, RESULT, MPI_COMM_WORLD);
		}
	}

	if (self == 0) {
		char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
		int length;
		MPI_Get_library_version(version, &length);
		version[strcspn(version, "\n")] = '\0';
		FILE *out = fopen(argv[1], "w");
		if (!out)
			fail("cannot write the result: ", strerror(errno));
		fprintf(out, "{\"schema\":\"evenly.pingpong/1\",\"mpi\":");
		print_text(out, version);
		fprintf(out, ",\"ranks\":%d,\"small_bytes\":%d,\"large_bytes\":%d,\"hosts\":[", ranks,
			SMALL_BYTES, LARGE_BYTES);
		for (int h = 0; h < hosts; h++) {
			fprintf(out, "%s{\"name\":", h ? "," : "");
			print_text(out, names[first[h]]);
			fprintf(out, ",\"first_rank\":%d,\"ranks\":%d}", first[h], members[h]);
		}
		fprintf(out, "],\"pairs\":[");
		const struct result *result = results;
		for (int a = 0; a < hosts; a++)
			for (int b = a + 1; b < hosts; b++, result++) {
				fprintf(out, "%s{\"hosts\":[%d,%d],", result == results ? "" : ",", a, b);
				print_numbers(out, "latency_s", result->latency_s, SAMPLES);
				fputc(',', out);
				print_numbers(out, "bytes_per_s", result->bytes_per_s, LARGE_SAMPLES);
				fputc('}', out);
			}
		fprintf(out, "]}\n");
		if (fclose(out))
			fail("cannot write the result: ", strerror(errno));
	}
	free(results);
	free(names);
	free(ball);
	signal(SIGALRM, leave);
	alarm(LEAVE_S);
	MPI_Finalize();
	return 0;
}
