/*
 * Which ranks of MPI_COMM_WORLD the members of a communicator, a window or a group are.
 */
#ifndef EVENLY_MPI_MEMBERS_H
#define EVENLY_MPI_MEMBERS_H

#ifndef EVENLY_MPI_TIME_H /* these stand before this where evenly has it compiled */
#include "mpi_time.h"
#endif

/* ---------------------------------------------------------------- ranks of communicators */

struct members {
	int size, me;
	bool inter;
	int *world;      /* their ranks in MPI_COMM_WORLD, negative where they are not in it; NULL: the same */
	int degree;      /* of a topology: to how many this rank sends */
	int *neighbours;
};

static struct members all;
/* Goes up when a communicator or window is freed: what was remembered of its handle is void. */
static _Atomic unsigned generation;
static pthread_mutex_t building = PTHREAD_MUTEX_INITIALIZER;

static void release(void *value)
{
	struct members *m = value;
	atomic_fetch_add_explicit(&generation, 1, memory_order_release);
	free(m->world);
	free(m->neighbours);
	free(m);
}

static int forget_comm(MPI_Comm comm, int key, void *value, void *extra)
{
	(void)comm, (void)key, (void)extra;
	release(value);
	return MPI_SUCCESS;
}

static int forget_win(MPI_Win win, int key, void *value, void *extra)
{
	(void)win, (void)key, (void)extra;
	release(value);
	return MPI_SUCCESS;
}

/* A duplicate is looked at anew. */
static int copy_comm(MPI_Comm comm, int key, void *extra, void *value, void *copy, int *flag)
{
	(void)comm, (void)key, (void)extra, (void)value, (void)copy;
	*flag = 0;
	return MPI_SUCCESS;
}

static int copy_win(MPI_Win win, int key, void *extra, void *value, void *copy, int *flag)
{
	(void)win, (void)key, (void)extra, (void)value, (void)copy;
	*flag = 0;
	return MPI_SUCCESS;
}

/* The members of a group; NULL where that cannot be found out. Frees the group. */
static struct members *of_group(MPI_Group group)
{
	int size = 0;
	if (PMPI(Group_size, (MPI_Group, int *), group, &size) != MPI_SUCCESS || size < 0)
		return NULL;
	struct members *m = calloc(1, sizeof *m);
	int *ranks = malloc(sizeof(int) * (size_t)(size + 1));
	if (m)
		m->world = malloc(sizeof(int) * (size_t)(size + 1));
	if (m && m->world && ranks) {
		m->size = size;
		for (int i = 0; i < size; i++) {
			ranks[i] = i;
			m->world[i] = -1;
		}
		PMPI(Group_translate_ranks, (MPI_Group, int, const int *, MPI_Group, int *), group, size, ranks,
			run.world_group, m->world);
		for (int i = 0; i < size; i++)
			if (m->world[i] < 0 || m->world[i] >= run.ranks)
				m->world[i] = -1;
	} else if (m) {
		free(m->world);
		free(m);
		m = NULL;
	}
	free(ranks);
	PMPI(Group_free, (MPI_Group *), &group);
	return m;
}

static void find_neighbours(struct members *m, MPI_Comm comm)
{
	int kind = MPI_UNDEFINED;
	PMPI(Topo_test, (MPI_Comm, int *), comm, &kind);
	if (kind == MPI_CART) {
		int dims = 0;
		PMPI(Cartdim_get, (MPI_Comm, int *), comm, &dims);
		m->neighbours = malloc(sizeof(int) * (size_t)(2 * dims + 1));
		if (!m->neighbours)
			return;
		int rc = MPI_SUCCESS;
		for (int d = 0; d < dims && rc == MPI_SUCCESS; d++)
			rc = PMPI(Cart_shift, (MPI_Comm, int, int, int *, int *), comm, d, 1, &m->neighbours[2 * d],
				&m->neighbours[2 * d + 1]);
		m->degree = rc == MPI_SUCCESS ? 2 * dims : 0;
	} else if (kind == MPI_GRAPH) {
		int n = 0;
		PMPI(Graph_neighbors_count, (MPI_Comm, int, int *), comm, m->me, &n);
		m->neighbours = malloc(sizeof(int) * (size_t)(n + 1));
		if (!m->neighbours)
			return;
		if (PMPI(Graph_neighbors, (MPI_Comm, int, int, int *), comm, m->me, n, m->neighbours) == MPI_SUCCESS)
			m->degree = n;
	} else if (kind == MPI_DIST_GRAPH) {
		int in = 0, out = 0, weighted = 0;
		PMPI(Dist_graph_neighbors_count, (MPI_Comm, int *, int *, int *), comm, &in, &out, &weighted);
		m->neighbours = malloc(sizeof(int) * (size_t)(out + 1));
		/* Sources, and weights of both, which are not needed. */
		int *rest = calloc((size_t)(2 * in + out + 1), sizeof(int));
		if (m->neighbours && rest
			&& PMPI(Dist_graph_neighbors, (MPI_Comm, int, int *, int *, int, int *, int *), comm, in, rest,
				   rest + in, out, m->neighbours, rest + 2 * in) == MPI_SUCCESS)
			m->degree = out;
		free(rest);
	}
}

static struct members *look_at_comm(MPI_Comm comm)
{
	int inter = 0;
	MPI_Group group;
	if (PMPI(Comm_test_inter, (MPI_Comm, int *), comm, &inter) != MPI_SUCCESS)
		return NULL;
	int rc = inter ? PMPI(Comm_remote_group, (MPI_Comm, MPI_Group *), comm, &group)
		       : PMPI(Comm_group, (MPI_Comm, MPI_Group *), comm, &group);
	struct members *m = rc == MPI_SUCCESS ? of_group(group) : NULL;
	if (!m)
		return NULL;
	m->inter = inter;
	PMPI(Comm_rank, (MPI_Comm, int *), comm, &m->me);
	if (!inter)
		find_neighbours(m, comm);
	return m;
}

static const struct members *members_of(MPI_Comm comm)
{
	static __thread struct {
		MPI_Comm comm;
		unsigned generation;
		const struct members *members;
	} last __attribute__((tls_model("initial-exec")));
	if (comm == run.world)
		return &all;
	unsigned now = atomic_load_explicit(&generation, memory_order_acquire);
	if (last.members && last.comm == comm && last.generation == now)
		return last.members;
	struct members *m = NULL;
	int found = 0;
	/* The lock keeps two threads from putting something there, of which one would be freed again. */
	pthread_mutex_lock(&building);
	PMPI(Comm_get_attr, (MPI_Comm, int, void *, int *), comm, run.comm_key, &m, &found);
	if (!found) {
		m = look_at_comm(comm);
		if (m)
			PMPI(Comm_set_attr, (MPI_Comm, int, void *), comm, run.comm_key, m);
	}
	pthread_mutex_unlock(&building);
	last.comm = comm;
	last.generation = now;
	last.members = m;
	return m;
}

static const struct members *members_of_win(MPI_Win win)
{
	struct members *m = NULL;
	int found = 0;
	pthread_mutex_lock(&building);
	PMPI(Win_get_attr, (MPI_Win, int, void *, int *), win, run.win_key, &m, &found);
	if (!found) {
		MPI_Group group;
		if (PMPI(Win_get_group, (MPI_Win, MPI_Group *), win, &group) == MPI_SUCCESS)
			m = of_group(group);
		if (m)
			PMPI(Win_set_attr, (MPI_Win, int, void *), win, run.win_key, m);
	}
	pthread_mutex_unlock(&building);
	return m;
}

#endif
