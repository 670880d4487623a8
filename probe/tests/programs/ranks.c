// Two ranks for tests of the probe, as steps.c: the first holds up the second. The argument is the level of
// threads that is asked for, or "plain" for MPI_Init. Rank 1 publishes nothing by itself; both compute a sum. With
// "crash" a rank that is alone dies of its own fault within a call; with "threads" two threads of rank 1 wait in
// MPI at the same time; with "file" rank 0 is late at a file; "alone" is one rank; with "peers" ranks 1 and 2 wait for
// rank 0 in communicators of several kinds. Also built as a module, to be loaded by module.c.
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "step.h"

// Receives what rank 0 sends with this tag.
static void *receive(void *tag)
{
	int got = -1, wanted = (int)(long)tag;
	MPI_Recv(&got, 1, MPI_INT, 0, wanted, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	return got == wanted ? NULL : (void *)1;
}

static int threads(int rank)
{
	if (rank == 0) {
		step("threads");
		for (int tag = 7; tag <= 8; tag++)
			MPI_Send(&tag, 1, MPI_INT, 1, tag, MPI_COMM_WORLD);
	} else {
		pthread_t other;
		void *wrong;
		pthread_create(&other, NULL, receive, (void *)7L);
		if (receive((void *)8L))
			return 1;
		pthread_join(other, &wrong);
		if (wrong)
			return 2;
	}
	MPI_Finalize();
	return 0;
}

static int file(int rank)
{
	char path[4096];
	int got = -1, other = 1 - rank;
	MPI_File file;
	snprintf(path, sizeof path, "%s/evenly-ranks", getenv("TMPDIR"));
	MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL,
		&file);
	if (rank == 0)
		step("file");
	MPI_File_set_size(file, 8);
	MPI_File_write_at_all(file, 4 * rank, &rank, 1, MPI_INT, MPI_STATUS_IGNORE);
	MPI_File_sync(file);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_File_sync(file);
	MPI_File_read_at_all(file, 4 * other, &got, 1, MPI_INT, MPI_STATUS_IGNORE);
	MPI_File_close(&file);
	MPI_Finalize();
	return got == other ? 0 : 1;
}

// Rank 0 computes, and then sends what the others wait for, from its rank in this communicator.
static void held(const char *what, int rank, MPI_Comm comm, int zero)
{
	int token = rank, size, remote;
	MPI_Comm_test_inter(comm, &remote);
	(remote ? MPI_Comm_remote_size : MPI_Comm_size)(comm, &size);
	if (rank == 0) {
		step(what);
		for (int to = 0; to < size; to++)
			if (remote || to != zero)
				MPI_Send(&token, 1, MPI_INT, to, 5, comm);
	} else {
		MPI_Recv(&token, 1, MPI_INT, zero, 5, comm, MPI_STATUS_IGNORE);
		if (token != 0)
			exit(8);
	}
}

static int peers(int rank)
{
	MPI_Comm world = MPI_COMM_WORLD, comm, old, part, many[70];
	MPI_Request request;
	int token = rank, got, size[] = { 3 }, open[] = { 0 };
	held("receive", rank, world, 0);
	if (rank == 0) {
		step("any");
		for (int to = 1; to <= 2; to++)
			MPI_Send(&token, 1, MPI_INT, to, 6, world);
		step("probe");
		for (int to = 1; to <= 2; to++)
			MPI_Send(&token, 1, MPI_INT, to, 6, world);
		step("send");
		for (int from = 1; from <= 2; from++)
			MPI_Recv(&token, 1, MPI_INT, from, 7, world, MPI_STATUS_IGNORE);
		step("sendrecv");
		for (int other = 1; other <= 2; other++)
			MPI_Sendrecv(&token, 1, MPI_INT, other, 8, &got, 1, MPI_INT, other, 8, world, MPI_STATUS_IGNORE);
		step("replace");
		for (int other = 1; other <= 2; other++)
			MPI_Sendrecv_replace(&token, 1, MPI_INT, other, 9, other, 9, world, MPI_STATUS_IGNORE);
		step("wait");
		for (int to = 1; to <= 2; to++)
			MPI_Send(&token, 1, MPI_INT, to, 10, world);
	} else {
		MPI_Recv(&token, 1, MPI_INT, MPI_ANY_SOURCE, 6, world, MPI_STATUS_IGNORE);
		MPI_Probe(0, 6, world, MPI_STATUS_IGNORE);
		MPI_Recv(&token, 1, MPI_INT, 0, 6, world, MPI_STATUS_IGNORE);
		MPI_Ssend(&token, 1, MPI_INT, 0, 7, world);
		// The other one has gone on: it is not waited for.
		MPI_Sendrecv(&token, 1, MPI_INT, 0, 8, &got, 1, MPI_INT, 0, 8, world, MPI_STATUS_IGNORE);
		MPI_Sendrecv_replace(&token, 1, MPI_INT, 0, 9, 0, 9, world, MPI_STATUS_IGNORE);
		MPI_Irecv(&token, 1, MPI_INT, 0, 10, world, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	}
	if (rank == 0)
		step("broadcast");
	MPI_Bcast(&got, 1, MPI_INT, 0, world);
	if (rank == 0)
		step("sum");
	MPI_Allreduce(&rank, &got, 1, MPI_INT, MPI_SUM, world);
	MPI_Comm_dup(world, &comm);
	held("duplicate", rank, comm, 0);
	if (rank == 0)
		step("same");
	MPI_Barrier(comm);
	MPI_Comm_free(&comm);
	MPI_Cart_create(world, 1, size, open, 0, &comm);
	held("cart", rank, comm, 0);
	MPI_Comm_free(&comm);
	MPI_Comm_split(world, 0, -rank, &old);
	held("turned", rank, old, 2);
	if (rank == 0)
		step("other");
	MPI_Barrier(old);
	MPI_Comm_split(world, rank == 0, rank, &part);
	MPI_Intercomm_create(part, 0, world, rank == 0 ? 1 : 0, 11, &comm);
	held("inter", rank, comm, 0);
	MPI_Comm_free(&comm);
	MPI_Comm_idup(world, &comm, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	held("unseen", rank, comm, 0);
	MPI_Comm_free(&comm);
	for (int i = 0; i < 70; i++)
		MPI_Comm_dup(part, &many[i]);
	held("old", rank, old, 2);
	for (int i = 0; i < 70; i++)
		MPI_Comm_free(&many[i]);
	// Of which not all are members.
	MPI_Comm_split(world, rank == 0 ? MPI_UNDEFINED : 0, 0, &comm);
	if (rank == 0)
		step("all");
	MPI_Barrier(world);
	MPI_Finalize();
	return 0;
}

int run(const char *what);
int run(const char *what)
{
	int rank, size, level = 0, got = 0, sum = 0;
	int levels[] = { MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE };
	if (!strcmp(what, "threads"))
		MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
	else if (what[0] >= '0' && what[0] <= '3')
		MPI_Init_thread(NULL, NULL, levels[atoi(what)], &level);
	else
		MPI_Init(NULL, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (!strcmp(what, "threads"))
		return level == MPI_THREAD_MULTIPLE ? threads(rank) : 3;
	if (!strcmp(what, "file"))
		return file(rank);
	if (!strcmp(what, "peers"))
		return peers(rank);
	if (!strcmp(what, "alone")) {
		MPI_Barrier(MPI_COMM_WORLD);
		step("alone");
		MPI_Finalize();
		return 0;
	}
	if (!strcmp(what, "crash")) {
		MPI_Request request;
		MPI_Irecv((void *)8, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &request);
		MPI_Send(&rank, 1, MPI_INT, 0, 0, MPI_COMM_SELF);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		return 7;
	}
	if (rank == 0)
		step("barrier");
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		step("receive");
		int token = 42;
		MPI_Send(&token, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
	} else {
		MPI_Recv(&got, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
	MPI_Request request;
	int other = 1 - rank, theirs = -1;
	MPI_Irecv(&theirs, 1, MPI_INT, other, 1, MPI_COMM_WORLD, &request);
	if (rank == 0)
		step("wait");
	MPI_Send(&rank, 1, MPI_INT, other, 1, MPI_COMM_WORLD);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	int mine[2] = { rank + got, theirs }, all[2];
	MPI_Allreduce(mine, all, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Sendrecv(&rank, 1, MPI_INT, other, 2, &theirs, 1, MPI_INT, other, 2, MPI_COMM_WORLD,
		MPI_STATUS_IGNORE);
	sum = all[0] * 100 + all[1] * 10 + theirs;
	if (rank == 0)
		step("last");
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Finalize();
	// 43 and 1, and the number of the other.
	return sum == 4310 + other ? 0 : 1;
}

#ifndef MODULE
int main(int argc, char **argv)
{
	return run(argc > 1 ? argv[1] : "plain");
}
#endif
