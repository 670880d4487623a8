/*
 * Messages that are known beforehand, of every kind that the probe counts, and results that are checked.
 * What is sent is written down beside it, as FROM -> TO MESSAGES x BYTES; `profile.rs` expects exactly this.
 *
 *   pattern WHAT...     for 4 ranks; WHAT: point split derived persistent collective neighbour sided other
 *                       large load threads abort exit die fail
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Large counts of MPI-4; where there are none, the same with small ones. */
#if MPI_VERSION >= 4
typedef MPI_Count Large;
typedef MPI_Aint Place;
#else
typedef int Large, Place;
#define MPI_Send_c MPI_Send
#define MPI_Isend_c MPI_Isend
#define MPI_Recv_c MPI_Recv
#define MPI_Irecv_c MPI_Irecv
#define MPI_Send_init_c MPI_Send_init
#define MPI_Sendrecv_c MPI_Sendrecv
#define MPI_Bcast_c MPI_Bcast
#define MPI_Gather_c MPI_Gather
#define MPI_Scatterv_c MPI_Scatterv
#define MPI_Allgather_c MPI_Allgather
#define MPI_Allgatherv_c MPI_Allgatherv
#define MPI_Iallreduce_c MPI_Iallreduce
#define MPI_Alltoallv_c MPI_Alltoallv
#define MPI_Alltoallw_c MPI_Alltoallw
#define MPI_Reduce_scatter_c MPI_Reduce_scatter
#define MPI_Exscan_c MPI_Exscan
#define MPI_Neighbor_alltoallv_c MPI_Neighbor_alltoallv
#define MPI_Win_create_c(base, size, unit, info, comm, win) MPI_Win_create(base, size, (int)(unit), info, comm, win)
#define MPI_Put_c MPI_Put
#define MPI_Get_accumulate_c MPI_Get_accumulate
#endif

static int me, n;

static void need(int right, const char *what)
{
	if (!right) {
		fprintf(stderr, "rank %d: wrong result: %s\n", me, what);
		MPI_Abort(MPI_COMM_WORLD, 3);
	}
}
#define NEED(condition) need(condition, #condition)

static void point(void)
{
	int right = (me + 1) % n, left = (me + n - 1) % n;
	/* i -> i+1: 10 x 12 */
	for (int k = 0; k < 10; k++) {
		int out[3] = { me, k, 7 }, in[3];
		MPI_Request request;
		MPI_Isend(out, 3, MPI_INT, right, k, MPI_COMM_WORLD, &request);
		MPI_Recv(in, 3, MPI_INT, left, k, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		NEED(in[0] == left && in[1] == k);
	}
	/* 0 -> 1: 8 16 24 32 40 48 56 bytes, one each; 1 -> 0: one of nothing. */
	char text[64] = "", buffer[4096];
	memset(text, 'a' + me, sizeof text);
	MPI_Buffer_attach(buffer, sizeof buffer);
	if (me == 0) {
		MPI_Request requests[3];
		MPI_Recv(NULL, 0, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Send(text, 8, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
		MPI_Ssend(text, 16, MPI_CHAR, 1, 2, MPI_COMM_WORLD);
		MPI_Bsend(text, 24, MPI_CHAR, 1, 3, MPI_COMM_WORLD);
		MPI_Rsend(text, 32, MPI_CHAR, 1, 4, MPI_COMM_WORLD);
		MPI_Ibsend(text, 40, MPI_CHAR, 1, 5, MPI_COMM_WORLD, &requests[0]);
		MPI_Issend(text, 48, MPI_CHAR, 1, 6, MPI_COMM_WORLD, &requests[1]);
		MPI_Irsend(text, 56, MPI_CHAR, 1, 7, MPI_COMM_WORLD, &requests[2]);
		MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
		/* To nobody: not counted. */
		MPI_Send(text, 8, MPI_CHAR, MPI_PROC_NULL, 1, MPI_COMM_WORLD);
	} else if (me == 1) {
		char in[7][64];
		MPI_Request requests[7];
		for (int k = 0; k < 7; k++)
			MPI_Irecv(in[k], 64, MPI_CHAR, 0, k + 1, MPI_COMM_WORLD, &requests[k]);
		MPI_Send(NULL, 0, MPI_INT, 0, 0, MPI_COMM_WORLD);
		for (int done = 0, which; done < 7; done++)
			MPI_Waitany(7, requests, &which, MPI_STATUS_IGNORE);
		NEED(in[6][55] == 'a');
	}
	void *detached;
	int size;
	MPI_Buffer_detach(&detached, &size);
	/* i -> i-1: 1 x 32 and 1 x 4 */
	double out[4] = { me }, in[4];
	MPI_Sendrecv(out, 4, MPI_DOUBLE, left, 0, in, 4, MPI_DOUBLE, right, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	int turned = me;
	MPI_Sendrecv_replace(&turned, 1, MPI_INT, left, 1, right, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	NEED(in[0] == right && turned == right);
}

static void split(void)
{
	MPI_Comm half, twin, turned;
	char text[16] = "";
	/* i -> i^2 (n = 4): 1 x 5 and, in a duplicate, 1 x 7 */
	MPI_Comm_split(MPI_COMM_WORLD, me % 2, me, &half);
	int mine, many;
	MPI_Comm_rank(half, &mine);
	MPI_Comm_size(half, &many);
	int to = (mine + 1) % many, from = (mine + many - 1) % many;
	MPI_Sendrecv(text, 5, MPI_CHAR, to, 0, text + 8, 5, MPI_CHAR, from, 0, half, MPI_STATUS_IGNORE);
	MPI_Comm_dup(half, &twin);
	MPI_Comm_free(&half);
	MPI_Sendrecv(text, 7, MPI_CHAR, to, 0, text + 8, 7, MPI_CHAR, from, 0, twin, MPI_STATUS_IGNORE);
	MPI_Comm_free(&twin);
	/* 3 -> 2: 1 x 9. Handles of communicators that were freed may come back. */
	MPI_Comm_split(MPI_COMM_WORLD, 0, n - me, &turned);
	MPI_Comm_rank(turned, &mine);
	NEED(mine == n - 1 - me);
	if (mine == 0)
		MPI_Send(text, 9, MPI_CHAR, 1, 0, turned);
	else if (mine == 1)
		MPI_Recv(text, 9, MPI_CHAR, 0, 0, turned, MPI_STATUS_IGNORE);
	MPI_Comm_free(&turned);
	/* Between groups: 0 -> 1: 1 x 3 and 2 -> 3: 1 x 3. */
	MPI_Comm parity, between;
	MPI_Comm_split(MPI_COMM_WORLD, me % 2, me, &parity);
	MPI_Intercomm_create(parity, 0, MPI_COMM_WORLD, 1 - me % 2, 9, &between);
	MPI_Comm_rank(parity, &mine);
	if (me % 2 == 0)
		MPI_Send(text, 3, MPI_CHAR, mine, 0, between);
	else
		MPI_Recv(text, 3, MPI_CHAR, mine, 0, between, MPI_STATUS_IGNORE);
	MPI_Barrier(between); /* one uncounted collective of each */
	MPI_Comm_free(&between);
	MPI_Comm_free(&parity);
}

static void derived(void)
{
	/* 0 -> 2: 1 x 48 (two of three blocks of two integers) */
	int room[64] = { 0 };
	MPI_Datatype type;
	MPI_Type_vector(3, 2, 4, MPI_INT, &type);
	MPI_Type_commit(&type);
	if (me == 0)
		MPI_Send(room, 2, type, 2, 0, MPI_COMM_WORLD);
	else if (me == 2)
		MPI_Recv(room, 2, type, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Type_free(&type);
}

static void persistent(void)
{
	/* 2 -> 3: 5 x 24 and 3 x 1 */
	int room[6] = { 0 };
	char byte = 'x';
	MPI_Request requests[2];
	if (me == 2) {
		MPI_Send_init(room, 6, MPI_INT, 3, 0, MPI_COMM_WORLD, &requests[0]);
		MPI_Ssend_init(&byte, 1, MPI_CHAR, 3, 1, MPI_COMM_WORLD, &requests[1]);
	} else if (me == 3) {
		MPI_Recv_init(room, 6, MPI_INT, 2, 0, MPI_COMM_WORLD, &requests[0]);
		MPI_Recv_init(&byte, 1, MPI_CHAR, 2, 1, MPI_COMM_WORLD, &requests[1]);
	} else {
		return;
	}
	for (int k = 0; k < 3; k++) {
		MPI_Startall(2, requests);
		MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
	}
	for (int k = 0; k < 2; k++) {
		MPI_Start(&requests[0]);
		MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
	}
	MPI_Request_free(&requests[0]);
	MPI_Request_free(&requests[1]);
}

static void collective(void)
{
	char text[256] = "";
	double x[16] = { me }, y[16];
	int a[64], b[64], counts[4], places[4], in_counts[4], in_places[4];
	MPI_Datatype types[4];
	MPI_Request request;
	for (int i = 0; i < 64; i++)
		a[i] = 100 * me + i;
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Bcast(text, 100, MPI_CHAR, 1, MPI_COMM_WORLD);
	MPI_Reduce(x, y, 10, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	NEED(me != 0 || y[0] == 6);
	MPI_Allreduce(a, b, 3, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	NEED(b[1] == 604);
	MPI_Gather(a, 4, MPI_INT, b, 4, me == 2 ? MPI_INT : MPI_DATATYPE_NULL, 2, MPI_COMM_WORLD);
	NEED(me != 2 || b[12] == 300);
	for (int i = 0; i < n; i++) {
		counts[i] = i + 1;
		places[i] = 8 * i;
	}
	MPI_Scatterv(a, counts, places, MPI_INT, b, me + 1, MPI_INT, 0, MPI_COMM_WORLD);
	NEED(b[me] == 9 * me);
	/* 3 -> i: 1 x 12; i -> 1: 1 x 4 (i + 1) */
	MPI_Scatter(a, 3, MPI_INT, b, 3, MPI_INT, 3, MPI_COMM_WORLD);
	NEED(b[2] == 302 + 3 * me);
	MPI_Gatherv(a, me + 1, MPI_INT, b, counts, places, MPI_INT, 1, MPI_COMM_WORLD);
	NEED(me != 1 || b[27] == 303);
	MPI_Allgather(a, 2, MPI_INT, b, 2, MPI_INT, MPI_COMM_WORLD);
	NEED(b[7] == 301);
	MPI_Allgatherv(text, me + 1, MPI_CHAR, text + 64, counts, places, MPI_CHAR, MPI_COMM_WORLD);
	MPI_Alltoall(x, 1, MPI_DOUBLE, y, 1, MPI_DOUBLE, MPI_COMM_WORLD);
	for (int i = 0; i < n; i++) {
		in_counts[i] = 2;
		in_places[i] = 2 * i;
		b[2 * i] = me;
	}
	MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, b, in_counts, in_places, MPI_INT, MPI_COMM_WORLD);
	NEED(b[6] == 3);
	for (int i = 0; i < n; i++) {
		in_counts[i] = me + 1;
		in_places[i] = 64 + 8 * i;
		types[i] = MPI_CHAR;
	}
	MPI_Alltoallw(text, counts, places, types, text, in_counts, in_places, types, MPI_COMM_WORLD);
	MPI_Reduce_scatter_block(a, b, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	NEED(b[0] == 600 + 8 * me);
	MPI_Reduce_scatter(a, b, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Scan(a, b, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	NEED(b[0] == 100 * me);
	MPI_Exscan(a, b, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Ibarrier(MPI_COMM_WORLD, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Ibcast(text, 1, MPI_CHAR, 0, MPI_COMM_WORLD, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Iallreduce(a, b, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	NEED(b[0] == 600);
	/* Three of them. */
	MPI_Comm three;
	MPI_Comm_split(MPI_COMM_WORLD, me < 3 ? 0 : MPI_UNDEFINED, me, &three);
	if (me < 3) {
		MPI_Allreduce(a, b, 5, MPI_INT, MPI_SUM, three);
		NEED(b[0] == 300);
		MPI_Comm_free(&three);
	}
}

static void neighbour(void)
{
	MPI_Comm line, graph;
	int a[8] = { me, me + 10 }, b[8], size = n, round = 1, open = 0;
	/* i -> i-1 and i+1: 1 x 4 each */
	MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &round, 0, &line);
	MPI_Neighbor_alltoall(a, 1, MPI_INT, b, 1, MPI_INT, line);
	NEED(b[0] == (me + n - 1) % n + 10 && b[1] == (me + 1) % n);
	MPI_Comm_free(&line);
	/* The same without the ends: 1 x 8 */
	MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &open, 0, &line);
	MPI_Neighbor_allgather(a, 2, MPI_INT, b, 2, MPI_INT, line);
	NEED(me == 0 || b[0] == me - 1);
	MPI_Comm_free(&line);
	/* i -> i+2: 1 x 12 */
	int from = (me + 2) % n, to = (me + 2) % n, count = 3, place = 0;
	MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &from, MPI_UNWEIGHTED, 1, &to, MPI_UNWEIGHTED,
		MPI_INFO_NULL, 0, &graph);
	MPI_Neighbor_alltoallv(a, &count, &place, MPI_INT, b, &count, &place, MPI_INT, graph);
	NEED(b[0] == from);
	MPI_Comm_free(&graph);
	/* On the ring, i -> i-1: 1 x 12, i -> i+1: 1 x 8; then 1 x 20 each */
	int counts[2] = { 3, 1 }, in_counts[2] = { 1, 3 }, in_places[2] = { 0 };
	MPI_Aint bytes[2] = { 0, 16 }, in_bytes[2] = { 0, 8 };
	MPI_Datatype types[2] = { MPI_INT, MPI_DOUBLE }, in_types[2] = { MPI_DOUBLE, MPI_INT };
	double x = me;
	memcpy(a + 4, &x, sizeof x);
	MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &round, 0, &line);
	MPI_Neighbor_alltoallw(a, counts, bytes, types, b, in_counts, in_bytes, in_types, line);
	memcpy(&x, b, sizeof x);
	NEED(x == (me + n - 1) % n && b[2] == (me + 1) % n);
	int all[10];
	in_counts[0] = in_counts[1] = in_places[1] = 5;
	MPI_Neighbor_allgatherv(a, 5, MPI_INT, all, in_counts, in_places, MPI_INT, line);
	NEED(all[0] == (me + n - 1) % n && all[5] == (me + 1) % n);
	MPI_Comm_free(&line);
}

static void sided(void)
{
	MPI_Win win;
	int room[8] = { 0 }, a[8] = { me, me, me }, b[8] = { 0 }, right = (me + 1) % n, zero = 0;
	MPI_Win_create(room, sizeof room, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	MPI_Win_fence(0, win);
	MPI_Put(a, 2, MPI_INT, right, 0, 2, MPI_INT, win); /* i -> i+1: 1 x 8 */
	MPI_Win_fence(0, win);
	NEED(room[0] == (me + n - 1) % n);
	MPI_Get(b, 3, MPI_INT, right, 0, 3, MPI_INT, win); /* i+1 -> i: 1 x 12 */
	MPI_Win_fence(0, win);
	NEED(b[0] == me);
	if (me != 0)
		MPI_Accumulate(a, 1, MPI_INT, 0, 3, 1, MPI_INT, MPI_SUM, win); /* i -> 0: 1 x 4 */
	MPI_Win_fence(0, win);
	NEED(me != 0 || room[3] == 6);
	MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
	MPI_Request request;
	if (me == 3) { /* 3 -> 0 and back: 1 x 4 */
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
		MPI_Fetch_and_op(a, b, MPI_INT, 0, 3, MPI_SUM, win);
		MPI_Win_unlock(0, win);
		NEED(b[0] == 6);
	} else if (me == 2) { /* 2 -> 1 and back: 1 x 4 */
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
		MPI_Compare_and_swap(a, &zero, b, MPI_INT, 1, 4, win);
		MPI_Win_unlock(1, win);
	} else if (me == 1) { /* 1 -> 2: 1 x 4; 1 -> 3 and back: 1 x 8 */
		MPI_Win_lock(MPI_LOCK_SHARED, 2, 0, win);
		MPI_Rput(a, 1, MPI_INT, 2, 5, 1, MPI_INT, win, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		MPI_Win_unlock(2, win);
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 3, 0, win);
		MPI_Get_accumulate(a, 2, MPI_INT, b, 2, MPI_INT, 3, 6, 2, MPI_INT, MPI_SUM, win);
		MPI_Win_unlock(3, win);
	}
	MPI_Win_free(&win);
	/* Of half of them: 0 -> 2 and 1 -> 3: 1 x 4 */
	MPI_Comm half;
	int mine;
	MPI_Comm_split(MPI_COMM_WORLD, me % 2, me, &half);
	MPI_Comm_rank(half, &mine);
	MPI_Win_create(room, sizeof room, sizeof(int), MPI_INFO_NULL, half, &win);
	MPI_Win_fence(0, win);
	if (mine == 0)
		MPI_Put(a, 1, MPI_INT, 1, 0, 1, MPI_INT, win);
	MPI_Win_fence(0, win);
	NEED(mine == 0 || room[0] == me - 2);
	MPI_Win_free(&win);
	MPI_Comm_free(&half);
	/* In memory that MPI gives, between those who say so: i -> i+1: 1 x 16 */
	int *given, left = (me + n - 1) % n, flag = 0;
	MPI_Group world, to, from;
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_incl(world, 1, &right, &to);
	MPI_Group_incl(world, 1, &left, &from);
	MPI_Win_allocate(16, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &given, &win);
	MPI_Win_post(from, 0, win);
	MPI_Win_start(to, 0, win);
	MPI_Put(a, 4, MPI_INT, right, 0, 4, MPI_INT, win);
	MPI_Win_complete(win);
	while (!flag)
		MPI_Win_test(win, &flag);
	NEED(given[0] == left);
	MPI_Win_free(&win);
	MPI_Group_free(&to);
	MPI_Group_free(&from);
	MPI_Group_free(&world);
}

/* Calls that wait and of which nothing is counted; what was made by them is. */
static void other(void)
{
	char out[8] = "", in[8];
	int ranks[2] = { me & ~1, me | 1 }, twin = 1 - (me & 1), right = (me + 1) % n, left = (me + n - 1) % n;
	int flag = 0, mine, a[2] = { me, me }, b[2];
	MPI_Comm pair, between, both, graph;
	MPI_Group world, group;
	MPI_Request request;
	/* i -> i^1: 1 x 6 */
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_incl(world, 2, ranks, &group);
	MPI_Comm_create_group(MPI_COMM_WORLD, group, 5, &pair);
	MPI_Irecv(in, 6, MPI_CHAR, twin, 0, pair, &request);
	MPI_Send(out, 6, MPI_CHAR, twin, 0, pair);
	while (!flag)
		MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	/* i -> i+1: 1 x 2 */
	MPI_Intercomm_create(pair, 0, MPI_COMM_WORLD, me < 2 ? 2 : 0, 7, &between);
	MPI_Intercomm_merge(between, me >= 2, &both);
	MPI_Comm_rank(both, &mine);
	NEED(mine == me);
	MPI_Sendrecv(out, 2, MPI_CHAR, right, 0, in, 2, MPI_CHAR, left, 0, both, MPI_STATUS_IGNORE);
	MPI_Comm_disconnect(&both);
	MPI_Comm_disconnect(&between);
	MPI_Comm_free(&pair);
	MPI_Group_free(&group);
	MPI_Group_free(&world);
	/* i -> i^1: 1 x 4 */
	int index[4] = { 1, 2, 3, 4 }, edges[4] = { 1, 0, 3, 2 };
	MPI_Graph_create(MPI_COMM_WORLD, n, index, edges, 0, &graph);
	MPI_Neighbor_allgather(a, 1, MPI_INT, b, 1, MPI_INT, graph);
	NEED(b[0] == (me ^ 1));
	MPI_Comm_free(&graph);
	/* i -> i+1: 1 x 8 */
	int one = 1;
	MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &me, &one, &right, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph);
	MPI_Neighbor_alltoall(a, 2, MPI_INT, b, 2, MPI_INT, graph);
	NEED(b[0] == left);
	MPI_Comm_free(&graph);
	/* A file, and a barrier */
	char path[4096];
	MPI_File file;
	snprintf(path, sizeof path, "%s/file", getenv("TMPDIR"));
	MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL,
		&file);
	MPI_File_write_at_all(file, me * (MPI_Offset)sizeof me, &me, 1, MPI_INT, MPI_STATUS_IGNORE);
	MPI_File_sync(file);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_File_sync(file);
	MPI_File_read_at_all(file, right * (MPI_Offset)sizeof me, &mine, 1, MPI_INT, MPI_STATUS_IGNORE);
	NEED(mine == right);
	MPI_File_close(&file);
}

static void large(void)
{
	int right = (me + 1) % n, left = (me + n - 1) % n, a[64], b[64];
	Large counts[4], in_counts[4];
	Place places[4], in_places[4];
	MPI_Datatype types[4];
	MPI_Request requests[2];
	for (int i = 0; i < 64; i++)
		a[i] = 100 * me + i;
	for (int i = 0; i < n; i++) {
		counts[i] = i + 1;
		places[i] = 8 * i;
		in_counts[i] = me + 1;
		in_places[i] = 8 * i;
		types[i] = MPI_INT;
	}
	/* i -> i+1: 1 x 12; i -> i-1: 1 x 16; 0 -> 1: 1 x 20; 2 -> 3: 2 x 4 */
	MPI_Irecv_c(b, 3, MPI_INT, left, 0, MPI_COMM_WORLD, &requests[0]);
	MPI_Isend_c(a, 3, MPI_INT, right, 0, MPI_COMM_WORLD, &requests[1]);
	MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
	NEED(b[0] == 100 * left);
	MPI_Sendrecv_c(a, 4, MPI_INT, left, 1, b, 4, MPI_INT, right, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	NEED(b[3] == 100 * right + 3);
	if (me == 0) {
		MPI_Send_c(a, 5, MPI_INT, 1, 2, MPI_COMM_WORLD);
	} else if (me == 1) {
		MPI_Recv_c(b, 5, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	} else if (me == 2) {
		MPI_Send_init_c(a, 1, MPI_INT, 3, 3, MPI_COMM_WORLD, &requests[0]);
		for (int k = 0; k < 2; k++) {
			MPI_Start(&requests[0]);
			MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
		}
		MPI_Request_free(&requests[0]);
	} else {
		for (int k = 0; k < 2; k++)
			MPI_Recv_c(b, 1, MPI_INT, 2, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
	/* The tree from 1: 24; i -> 2: 1 x 8; 0 -> i: 1 x 4 (i + 1); a ring of 4; one of 4 (i + 1) */
	MPI_Bcast_c(b, 6, MPI_INT, 1, MPI_COMM_WORLD);
	MPI_Gather_c(a, 2, MPI_INT, b, 2, MPI_INT, 2, MPI_COMM_WORLD);
	NEED(me != 2 || b[6] == 300);
	MPI_Scatterv_c(a, counts, places, MPI_INT, b, me + 1, MPI_INT, 0, MPI_COMM_WORLD);
	NEED(b[me] == 9 * me);
	MPI_Allgather_c(a, 1, MPI_INT, b, 1, MPI_INT, MPI_COMM_WORLD);
	NEED(b[3] == 300);
	MPI_Allgatherv_c(a, me + 1, MPI_INT, b, counts, places, MPI_INT, MPI_COMM_WORLD);
	NEED(b[27] == 303);
	/* Allreduce of 4; i -> j: 1 x 4 (j + 1), twice; 1 x 4 (j + 1); scan of 8 */
	MPI_Iallreduce_c(a, b, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
	MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
	NEED(b[0] == 600);
	MPI_Alltoallv_c(a, counts, places, MPI_INT, b, in_counts, in_places, MPI_INT, MPI_COMM_WORLD);
	NEED(b[24] == 300 + 8 * me);
	for (int i = 0; i < n; i++)
		places[i] = in_places[i] = 32 * i;
	MPI_Alltoallw_c(a, counts, places, types, b, in_counts, in_places, types, MPI_COMM_WORLD);
	NEED(b[24] == 300 + 8 * me);
	MPI_Reduce_scatter_c(a, b, counts, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	NEED(b[0] == 300 + me * (me + 1) / 2);
	MPI_Exscan_c(a, b, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	/* On the ring i -> i-1: 1 x 4, i -> i+1: 1 x 8 */
	MPI_Comm line;
	int size = n, round = 1;
	in_counts[0] = 2;
	in_counts[1] = 1;
	places[0] = in_places[0] = 0;
	places[1] = in_places[1] = 2;
	MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &round, 0, &line);
	MPI_Neighbor_alltoallv_c(a, counts, places, MPI_INT, b, in_counts, in_places, MPI_INT, line);
	NEED(b[0] == 100 * left + 2 && b[2] == 100 * right);
	MPI_Comm_free(&line);
	/* i -> i+1: 1 x 12; 1 -> 3 and back: 1 x 8 */
	MPI_Win win;
	memset(b, 0, sizeof b);
	MPI_Win_create_c(b, sizeof b, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	MPI_Win_fence(0, win);
	MPI_Put_c(a, 3, MPI_INT, right, 0, 3, MPI_INT, win);
	MPI_Win_fence(0, win);
	NEED(b[2] == 100 * left + 2);
	int got[2];
	if (me == 1)
		MPI_Get_accumulate_c(a, 2, MPI_INT, got, 2, MPI_INT, 3, 8, 2, MPI_INT, MPI_SUM, win);
	MPI_Win_fence(0, win);
	NEED(me != 3 || b[9] == 101);
	MPI_Win_free(&win);
}

/* Rank k computes for k * 200 ms of its CPU time, and waits for the others. */
static void load(void)
{
	struct timespec t, begun;
	volatile double x = 1;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begun);
	do {
		for (int i = 0; i < 10000; i++)
			x = x * 1.0000001;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	} while ((t.tv_sec - begun.tv_sec) * 1e9 + (double)(t.tv_nsec - begun.tv_nsec) < me * 200e6);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void *thread(void *tag)
{
	int out = me, in, right = (me + 1) % n, left = (me + n - 1) % n;
	for (int k = 0; k < 100; k++) {
		MPI_Sendrecv(&out, 1, MPI_INT, right, (int)(long)tag, &in, 1, MPI_INT, left, (int)(long)tag,
			MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		NEED(in == left);
	}
	return NULL;
}

/* i -> i+1: 400 x 4 */
static void threads(void)
{
	pthread_t all[4];
	for (long k = 0; k < 4; k++)
		if (pthread_create(&all[k], NULL, thread, (void *)k))
			MPI_Abort(MPI_COMM_WORLD, 4);
	for (int k = 0; k < 4; k++)
		pthread_join(all[k], NULL);
}

int main(int argc, char **argv)
{
	int level = MPI_THREAD_SINGLE, wanted = MPI_THREAD_SINGLE;

	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "threads"))
			wanted = MPI_THREAD_MULTIPLE;
	if (wanted == MPI_THREAD_SINGLE)
		MPI_Init(&argc, &argv);
	else
		MPI_Init_thread(&argc, &argv, wanted, &level);
	NEED(level == wanted);
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_size(MPI_COMM_WORLD, &n);
	for (int i = 1; i < argc; i++) {
		const struct {
			const char *name;
			void (*run)(void);
		} all[] = { { "point", point }, { "split", split }, { "derived", derived },
			{ "persistent", persistent }, { "collective", collective }, { "neighbour", neighbour },
			{ "sided", sided }, { "other", other }, { "large", large }, { "load", load }, { "threads", threads } };
		for (size_t k = 0; k < sizeof all / sizeof *all; k++)
			if (!strcmp(argv[i], all[k].name))
				all[k].run();
		if (!strcmp(argv[i], "abort"))
			MPI_Abort(MPI_COMM_WORLD, 5);
		if (!strcmp(argv[i], "exit"))
			exit(6);
		if (!strcmp(argv[i], "die") && me == 1)
			abort();
		if (!strcmp(argv[i], "die"))
			sleep(60);
		if (!strcmp(argv[i], "fail")) {
			MPI_Finalize();
			return 7;
		}
	}
	MPI_Finalize();
	if (me == 0)
		puts("all results right");
	return 0;
}
