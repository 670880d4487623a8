/*
 * What is counted of each call: messages and bytes of the algorithms that docs/map.md ("Profiles") writes down.
 */
#ifndef EVENLY_MPI_COUNTS_H
#define EVENLY_MPI_COUNTS_H

#ifndef EVENLY_MPI_MEMBERS_H /* these stand before this where evenly has it compiled */
#include "mpi_members.h"
#endif

/* ---------------------------------------------------------------- what is counted */

/* How much each of several gets: the same, or what stands in an array, of either kind. */
struct counts {
	int64_t one;
	const int *ints;
	const MPI_Count *large;
};

static int64_t count_at(struct counts counts, int i)
{
	return counts.ints ? counts.ints[i] : counts.large ? counts.large[i] : counts.one;
}

/* Of nothing the type need not be one. */
static uint64_t bytes_of(int64_t count, MPI_Datatype type)
{
	int size = 0;
	if (count <= 0)
		return 0;
	PMPI(Type_size, (MPI_Datatype, int *), type, &size);
	return size > 0 ? (uint64_t)size * (uint64_t)count : 0;
}

/* The rank in MPI_COMM_WORLD; negative where it is none. */
static int in_world(const struct members *m, int i)
{
	return m->world ? m->world[i] : i;
}

static void add_to(struct evenly_tally *tallies, int world, uint64_t messages, uint64_t bytes)
{
	if (world < 0) {
		add(run.outside, messages);
		return;
	}
	add(&tallies[world].messages, messages);
	add(&tallies[world].bytes, bytes);
}

/* One message to a member. MPI_PROC_NULL is negative in both libraries. */
static void count_message(const struct members *m, int to, uint64_t bytes)
{
	if (m && to >= 0 && to < m->size)
		add_to(run.sent, in_world(m, to), 1, bytes);
}

static void count_send(int64_t count, MPI_Datatype type, int to, MPI_Comm comm)
{
	if (to >= 0)
		count_message(members_of(comm), to, bytes_of(count, type));
}

/* Members of one group, for a collective. */
static const struct members *collective(MPI_Comm comm)
{
	const struct members *m = members_of(comm);
	if (m && !m->inter)
		return m;
	add(run.uncounted, 1);
	return NULL;
}

/* Dissemination. */
static void count_barrier(MPI_Comm comm)
{
	const struct members *m = collective(comm);
	for (int64_t k = 1; m && k < m->size; k *= 2)
		count_message(m, (int)((m->me + k) % m->size), 0);
}

/* A binomial tree: from the root, whose number counts as 0, to v + 1, v + 2, v + 4... below the lowest
 * bit of v. */
static void count_bcast(int64_t count, MPI_Datatype type, int root, MPI_Comm comm)
{
	const struct members *m = collective(comm);
	if (!m || root < 0 || root >= m->size)
		return;
	uint64_t bytes = bytes_of(count, type);
	int64_t v = (m->me - root + m->size) % m->size;
	for (int64_t bit = 1; bit < m->size && !(v & bit); bit *= 2)
		if (v + bit < m->size)
			count_message(m, (int)((v + bit + root) % m->size), bytes);
}

/* The same tree, the other way. */
static void count_reduce(int64_t count, MPI_Datatype type, int root, MPI_Comm comm)
{
	const struct members *m = collective(comm);
	if (!m || root < 0 || root >= m->size || m->me == root)
		return;
	int v = (m->me - root + m->size) % m->size;
	count_message(m, ((v & (v - 1)) + root) % m->size, bytes_of(count, type));
}

/* Recursive doubling among the first 2^k; the others give theirs to one of these and get the result. */
static void count_allreduce(int64_t count, MPI_Datatype type, MPI_Comm comm)
{
	const struct members *m = collective(comm);
	if (!m)
		return;
	uint64_t bytes = bytes_of(count, type);
	int power = 1;
	while (power <= m->size / 2)
		power *= 2;
	if (m->me >= power) {
		count_message(m, m->me - power, bytes);
		return;
	}
	for (int bit = 1; bit < power; bit *= 2)
		count_message(m, m->me ^ bit, bytes);
	if (m->me < m->size - power)
		count_message(m, m->me + power, bytes);
}

/* Each to the root. */
static void count_gather(int64_t count, MPI_Datatype type, int root, MPI_Comm comm)
{
	const struct members *m = collective(comm);
	if (m && m->me != root)
		count_message(m, root, bytes_of(count, type));
}

/* The root to each. */
static void count_scatter(struct counts counts, MPI_Datatype type, int root, MPI_Comm comm)
{
	const struct members *m = collective(comm);
	for (int i = 0; m && m->me == root && i < m->size; i++)
		if (i != root)
			count_message(m, i, bytes_of(count_at(counts, i), type));
}

/* Around a ring: all parts but the right neighbour's own, to it. */
static void count_allgather(struct counts counts, MPI_Datatype type, MPI_Comm comm)
{
	const struct members *m = collective(comm);
	if (!m || m->size < 2)
		return;
	int right = (m->me + 1) % m->size;
	uint64_t bytes = 0;
	bool one = !counts.ints && !counts.large;
	if (one)
		bytes = bytes_of(counts.one, type) * (uint64_t)(m->size - 1);
	for (int i = 0; !one && i < m->size; i++)
		if (i != right)
			bytes += bytes_of(count_at(counts, i), type);
	add_to(run.sent, in_world(m, right), (uint64_t)m->size - 1, bytes);
}

/* Each to each other; types may be one for all. */
static void count_alltoall(struct counts counts, const MPI_Datatype *types, bool one_type, MPI_Comm comm)
{
	const struct members *m = collective(comm);
	for (int i = 0; m && i < m->size; i++)
		if (i != m->me)
			count_message(m, i, bytes_of(count_at(counts, i), types[one_type ? 0 : i]));
}

/* Recursive doubling without an end: to 1, 2, 4... further. */
static void count_scan(int64_t count, MPI_Datatype type, MPI_Comm comm)
{
	const struct members *m = collective(comm);
	uint64_t bytes = m ? bytes_of(count, type) : 0;
	for (int64_t k = 1; m && m->me + k < m->size; k *= 2)
		count_message(m, (int)(m->me + k), bytes);
}

/* To each neighbour of the topology. */
static void count_neighbours(struct counts counts, const MPI_Datatype *types, bool one_type, MPI_Comm comm)
{
	const struct members *m = collective(comm);
	for (int i = 0; m && i < m->degree; i++)
		if (m->neighbours[i] >= 0)
			count_message(m, m->neighbours[i], bytes_of(count_at(counts, i), types[one_type ? 0 : i]));
}

static void count_put(int64_t count, MPI_Datatype type, int target, MPI_Win win)
{
	if (target >= 0)
		count_message(members_of_win(win), target, bytes_of(count, type));
}

static void count_get(int64_t count, MPI_Datatype type, int target, MPI_Win win)
{
	const struct members *m = target >= 0 ? members_of_win(win) : NULL;
	if (m && target < m->size)
		add_to(run.fetched, in_world(m, target), 1, bytes_of(count, type));
}

/* There and back. */
static void count_both(
	int64_t count, MPI_Datatype type, int64_t back, MPI_Datatype back_type, int target, MPI_Win win)
{
	count_put(count, type, target, win);
	count_get(back, back_type, target, win);
}

/* ---------------------------------------------------------------- persistent sends */

struct persistent {
	struct persistent *next;
	MPI_Request request;
	int to;  /* in MPI_COMM_WORLD */
	uint64_t bytes;
};

#define CHAINS 1024
static struct persistent *persistents[CHAINS];
static pthread_mutex_t persisting = PTHREAD_MUTEX_INITIALIZER;

static struct persistent **chain_of(MPI_Request request)
{
	uint64_t h = (uint64_t)(uintptr_t)request * 0x9e3779b97f4a7c15u;
	return &persistents[h >> 54];
}

static void keep_send(int64_t count, MPI_Datatype type, int to, MPI_Comm comm, MPI_Request request)
{
	const struct members *m = to >= 0 ? members_of(comm) : NULL;
	struct persistent *p = m && to < m->size ? malloc(sizeof *p) : NULL;
	if (!p)
		return;
	p->request = request;
	p->to = in_world(m, to);
	p->bytes = bytes_of(count, type);
	pthread_mutex_lock(&persisting);
	p->next = *chain_of(request);
	*chain_of(request) = p;
	pthread_mutex_unlock(&persisting);
}

/* Counts a start, or forgets the request. What is not there is something else, as a receive. */
static void persistent(MPI_Request request, bool forget)
{
	pthread_mutex_lock(&persisting);
	for (struct persistent **p = chain_of(request); *p; p = &(*p)->next) {
		if ((*p)->request != request)
			continue;
		if (forget) {
			struct persistent *old = *p;
			*p = old->next;
			free(old);
		} else {
			add_to(run.sent, (*p)->to, 1, (*p)->bytes);
		}
		break;
	}
	pthread_mutex_unlock(&persisting);
}

#endif
