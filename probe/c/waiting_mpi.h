/*
 * Who waits in calls of MPI, and for which rank. A part of waiting.c.
 */
#ifndef EVENLY_WAITING_MPI_H
#define EVENLY_WAITING_MPI_H

#include "waiting_ranks.h"

/* ---------------------------------------------------------------- MPI */

enum {
	CALL_NONE,
#define CALL(name, fortran, n, kind) CALL_##name,
#define CALL_PEER(name, fortran, n, kind, peer, comm) CALL_##name,
#define CALL_ALL(name, fortran, n, kind, comm) CALL_##name,
#define CALL_NEW(name, fortran, n, kind, made) CALL_##name,
#define CALL_GONE CALL
#define CALL_INIT CALL
#define CALL_TEXT CALL
#define CALL_LARGE(name, n, kind) CALL_##name,
#define CALL_LARGE_PEER(name, n, kind, peer, comm) CALL_##name,
#define CALL_LARGE_ALL(name, n, kind, comm) CALL_##name,
#include "mpi_calls.h"
#undef CALL
#undef CALL_PEER
#undef CALL_ALL
#undef CALL_NEW
#undef CALL_GONE
#undef CALL_INIT
#undef CALL_TEXT
#undef CALL_LARGE
#undef CALL_LARGE_PEER
#undef CALL_LARGE_ALL
	CALLS,
	/* These stand together in the table. */
	FIRST_THAT_SENDS = CALL_Send,
	LAST_THAT_SENDS = CALL_Neighbor_alltoallw_c
};
_Static_assert(CALLS <= 1 << EVENLY_CALL_BITS, "each call has a number");
_Static_assert(EVENLY_CALL_BITS + EVENLY_PEER_BITS + EVENLY_RANK_BITS == 32, "they fill a word");

/*
 * Whom a call waits for. Its argument is a rank of a communicator; evenly wants to know which rank of
 * MPI_COMM_WORLD that is. To ask MPI would take too long in a call, so that is done when a communicator is made,
 * and kept under the number by which C, or Fortran, knows it, until it is freed. What is kept is little: a
 * communicator that had to make room, has more than MEMBERS members which are not those of MPI_COMM_WORLD in their
 * order, or was made by a call that is not in the table, is said to be another. MPI is asked by the thread that has
 * just called it, and only where its kind is known, and with it what its handles are.
 */
enum { WAYS = 4, KNOWN = 64 * WAYS, SLOTS = 64, MEMBERS = 256 };

static struct {
	_Atomic uint64_t world, fortran_world; /* the keys of MPI_COMM_WORLD; never a key where not known */
	_Atomic uint64_t mask;     /* what of an argument in C is a handle */
	_Atomic uint64_t fortran;  /* what makes those of Fortran other keys */
	_Atomic int any_source;
	_Atomic bool several;      /* there is more than one MPI in this process */
	/* Of the thread that has `busy`. */
	atomic_flag busy;
	uint32_t pid;      /* the process that is a rank */
	void *init;        /* PMPI_Init of its MPI */
	bool has_addresses; /* Open MPI: a handle is an address, and that of Fortran a number */
	long comm_null;
	int ranks;
	int (*comm_size)(long, int *), (*comm_remote_size)(long, int *), (*comm_compare)(long, long, int *);
	int (*comm_test_inter)(long, int *), (*comm_group)(long, long *), (*comm_remote_group)(long, long *);
	int (*translate)(long, int, const int *, long, int *), (*group_free)(long *);
	long (*from_fortran)(int);
	int (*to_fortran)(long);
	unsigned next_slot;
} mpi = { .world = ~UINT64_C(0), .fortran_world = ~UINT64_C(0), .busy = ATOMIC_FLAG_INIT };

/* Communicators by their keys, each in one of WAYS places: with one alone, two of few would be in each other's place
 * now and then, and each would have to be learnt. */
static struct { _Atomic uint64_t key; _Atomic uint32_t slot; } known_comms[KNOWN];
/* Their members. */
static struct {
	uint64_t keys[2];
	_Atomic int size;            /* -1: the same as MPI_COMM_WORLD */
	_Atomic int world[MEMBERS];  /* negative: not of MPI_COMM_WORLD */
} slots[SLOTS];

static inline unsigned place_of(uint64_t key)
{
	return (unsigned)(key * UINT64_C(0x9e3779b97f4a7c15) >> 58) * WAYS;
}
_Static_assert(KNOWN == WAYS << (64 - 58), "a place is one of the table");

/* Where this key is; KNOWN where it is not. Acquire, and once more the key, by who calls: what is read in between is
 * of this communicator, unless it was freed and made again while it was used. */
static inline unsigned find(uint64_t key)
{
	unsigned first = place_of(key);
	for (unsigned place = first; place < first + WAYS; place++)
		if (atomic_load_explicit(&known_comms[place].key, memory_order_acquire) == key)
			return place;
	return KNOWN;
}

static inline uint32_t packed(uint32_t call, uint32_t peer, uint32_t rank)
{
	return call | peer << EVENLY_CALL_BITS | rank << (EVENLY_CALL_BITS + EVENLY_PEER_BITS);
}

/* What a call publishes that waits for this rank of that communicator. */
static inline uint32_t waits_for(uint32_t call, int rank, uint64_t key)
{
	uint64_t world = GET(mpi.world);
	if (world == ~UINT64_C(0))
		return call;
	if (rank < 0)
		return rank == GET(mpi.any_source) ? packed(call, EVENLY_PEER_ANYONE, 0) : call;
	if (rank >= 1 << EVENLY_RANK_BITS)
		return call;
	if (key == world || key == GET(mpi.fortran_world))
		return packed(call, EVENLY_PEER_WORLD, (uint32_t)rank);
	unsigned place = find(key);
	if (place < KNOWN) {
		uint32_t slot = GET(known_comms[place].slot);
		int size = GET(slots[slot].size);
		int at = size < 0 ? rank : rank < size ? GET(slots[slot].world[rank]) : -1;
		atomic_thread_fence(memory_order_acquire);
		if (at >= 0 && GET(known_comms[place].key) == key)
			return packed(call, EVENLY_PEER_WORLD, (uint32_t)at);
	}
	return packed(call, EVENLY_PEER_OTHER, (uint32_t)rank);
}

/* The same of one that waits for all of that communicator: said where these are all of MPI_COMM_WORLD. */
static inline uint32_t waits_for_all(uint32_t call, uint64_t key)
{
	uint64_t world = GET(mpi.world);
	uint32_t all = packed(call, EVENLY_PEER_ANYONE, EVENLY_ALL);
	if (world == ~UINT64_C(0))
		return call;
	if (key == world || key == GET(mpi.fortran_world))
		return all;
	unsigned place = find(key);
	if (place == KNOWN)
		return call;
	int size = GET(slots[GET(known_comms[place].slot)].size);
	atomic_thread_fence(memory_order_acquire);
	return size < 0 && GET(known_comms[place].key) == key ? all : call;
}

/* Whether a call with this number is part of an exchange with some other ranks: it returns when what it is for has come, or is
 * taken; and a program that does the same in each iteration makes as many of these calls in each. */
static inline bool is_of_exchange(uint32_t call)
{
	switch (call) {
	case CALL_Recv: case CALL_Recv_c: case CALL_Wait: case CALL_Waitall: case CALL_Waitany:
	case CALL_Win_fence: case CALL_Win_complete: case CALL_Win_wait:
		return true;
	/* Of a copy, which nobody waits for. */
	case CALL_Bsend: case CALL_Bsend_c:
		return false;
	default:
		return call >= FIRST_THAT_SENDS && call <= LAST_THAT_SENDS;
	}
}

/* This rank has come to the call that publishes this. */
static inline uint32_t comes(uint32_t object, const void *caller)
{
	uint32_t call = object % (1 << EVENLY_CALL_BITS);
	if (!ranks.team || mpi.pid != pid || GET(mpi.several))
		return object;
	if (object == packed(call, EVENLY_PEER_ANYONE, EVENLY_ALL))
		comes_to_all(caller);
	else if (is_of_exchange(call))
		comes_to_exchange(caller);
	return object;
}

static inline uint64_t key_in_c(long comm)
{
	return (uint64_t)comm & GET(mpi.mask);
}

static inline uint64_t key_in_fortran(long comm)
{
	return *(const uint32_t *)comm | GET(mpi.fortran);
}

#define IN_C_FOR(name, peer, comm) waits_for(CALL_##name, (int)peer, key_in_c(comm))
#define IN_FORTRAN_FOR(name, peer, comm) waits_for(CALL_##name, *(const int *)peer, key_in_fortran(comm))
#define IN_C_FOR_ALL(name, comm) waits_for_all(CALL_##name, key_in_c(comm))
#define IN_FORTRAN_FOR_ALL(name, comm) waits_for_all(CALL_##name, key_in_fortran(comm))

static void drop_key(uint64_t key, uint32_t slot)
{
	unsigned place = find(key);
	if (place < KNOWN && (slot == SLOTS || GET(known_comms[place].slot) == slot))
		atomic_compare_exchange_strong(&known_comms[place].key, &key, 0);
}

/* Keeps who is in a communicator. One that other threads just keep is left out. */
static COLD void learn(long comm)
{
	int size = 0, inter = 0, order = 3;
	long world = (long)GET(mpi.world), group = 0, of_world = 0;
	if (!comm || comm == mpi.comm_null || atomic_flag_test_and_set(&mpi.busy))
		return;
	mpi.comm_test_inter(comm, &inter);
	(inter ? mpi.comm_remote_size : mpi.comm_size)(comm, &size);
	/* MPI_IDENT and MPI_CONGRUENT are 0 and 1 in each MPI. */
	if (!inter && size == mpi.ranks)
		mpi.comm_compare(comm, world, &order);
	bool same = order <= 1;
	if (same || size <= MEMBERS) {
		uint32_t slot = mpi.next_slot++ % SLOTS;
		uint64_t keys[2] = { key_in_c(comm), 0 };
		if (mpi.has_addresses)
			keys[1] = (uint32_t)mpi.to_fortran(comm) | GET(mpi.fortran);
		for (int i = 0; i < 2; i++)
			if (slots[slot].keys[i])
				drop_key(slots[slot].keys[i], slot);
		/* Release: who sees what is written from here on does not see the keys any more. */
		atomic_thread_fence(memory_order_release);
		SET(slots[slot].size, same ? -1 : size);
		if (!same) {
			(inter ? mpi.comm_remote_group : mpi.comm_group)(comm, &group);
			mpi.comm_group(world, &of_world);
			for (int rank = 0; rank < size; rank++) {
				int at = -1;
				mpi.translate(group, 1, &rank, of_world, &at);
				SET(slots[slot].world[rank], at < 1 << EVENLY_RANK_BITS ? at : -1);
			}
			mpi.group_free(&group);
			mpi.group_free(&of_world);
		}
		for (int i = 0; i < 2; i++) {
			slots[slot].keys[i] = keys[i];
			if (!keys[i])
				continue;
			unsigned place = find(keys[i]), first = place_of(keys[i]);
			for (unsigned at = first; place == KNOWN && at < first + WAYS; at++)
				if (!GET(known_comms[at].key))
					place = at;
			if (place == KNOWN)
				place = first + slot % WAYS;
			SET(known_comms[place].key, 0);
			atomic_thread_fence(memory_order_release);
			SET(known_comms[place].slot, slot);
			/* Release: who finds the key finds its members. */
			atomic_store_explicit(&known_comms[place].key, keys[i], memory_order_release);
		}
	}
	atomic_flag_clear(&mpi.busy);
}

static bool is_rank(void)
{
	return GET(mpi.world) != ~UINT64_C(0);
}

/* A handle as it stands in memory. */
static long handle_in_c(long at)
{
	return mpi.has_addresses ? *(const long *)at : (long)*(const uint32_t *)at;
}

static long handle_in_fortran(long at)
{
	return mpi.has_addresses ? mpi.from_fortran(*(const int *)at) : (long)*(const uint32_t *)at;
}

/* A communicator was made, unless that was within another call, which frees it perhaps unseen, or an
 * error. */
static inline void made_in_c(const line_t *entered, int error, long at)
{
	if (entered && !error && at && is_rank())
		learn(handle_in_c(at));
}

static inline void made_in_fortran(const line_t *entered, const int *error, long at)
{
	if (entered && !(error && *error) && is_rank())
		learn(handle_in_fortran(at));
}

/* A communicator is about to be freed. */
static COLD void forget_comm(long comm)
{
	if (!comm)
		return;
	drop_key(key_in_c(comm), SLOTS);
	if (mpi.has_addresses)
		drop_key((uint32_t)mpi.to_fortran(comm) | GET(mpi.fortran), SLOTS);
}

static inline void gone_in_c(long at)
{
	if (at && is_rank())
		forget_comm(handle_in_c(at));
}

static inline void gone_in_fortran(long at)
{
	if (is_rank())
		forget_comm(handle_in_fortran(at));
}

/* A function of MPI itself, past those who stand before it; NULL where there is none. */
static void *of_mpi(const char *name, const void *caller)
{
	void *at = of_caller(name, caller);
	return at ? at : dlsym(RTLD_NEXT, name);
}

/* A variable of it, which may be in the program. */
static long variable_of_mpi(const char *name, const void *caller)
{
	void *at = dlsym(RTLD_DEFAULT, name);
	return (long)(at ? at : of_caller(name, caller));
}

/* As NEXT: where there are two MPIs it depends on who calls. */
#define NEXT_OF_MPI(name)                                                              \
	({                                                                             \
		static _Atomic(void *) next_;                                          \
		void *at_ = GET(next_);                                                \
		LIKELY(at_ && !GET(mpi.several)) ? at_ : look_up(&next_, name, NULL, CALLER); \
	})

/* What the handles of this MPI are, and which rank this process is. */
static bool look_at_mpi(const void *caller, int *rank)
{
	int (*version)(char *, int *) = of_mpi("PMPI_Get_library_version", caller);
	int (*initialized)(int *) = of_mpi("PMPI_Initialized", caller);
	int (*comm_rank)(long, int *) = of_mpi("PMPI_Comm_rank", caller);
	Dl_info info;
	char text[16384] = "";
	int length = 0, yes = 0;
	mpi.comm_size = of_mpi("PMPI_Comm_size", caller);
	mpi.comm_remote_size = of_mpi("PMPI_Comm_remote_size", caller);
	mpi.comm_compare = of_mpi("PMPI_Comm_compare", caller);
	mpi.comm_test_inter = of_mpi("PMPI_Comm_test_inter", caller);
	mpi.comm_group = of_mpi("PMPI_Comm_group", caller);
	mpi.comm_remote_group = of_mpi("PMPI_Comm_remote_group", caller);
	mpi.translate = of_mpi("PMPI_Group_translate_ranks", caller);
	mpi.group_free = of_mpi("PMPI_Group_free", caller);
	if (!version || !initialized || !comm_rank || !mpi.comm_size || !mpi.comm_remote_size || !mpi.comm_compare
		|| !mpi.comm_test_inter || !mpi.comm_group || !mpi.comm_remote_group || !mpi.translate
		|| !mpi.group_free)
		return false;
	/* That of the standard ABI has other handles. */
	if (initialized(&yes) || !yes || version(text, &length) || !dladdr((void *)comm_rank, &info)
		|| !info.dli_fname || strstr(info.dli_fname, "mpi_abi"))
		return false;
	long world, self;
	uint64_t mask = ~UINT64_C(0), fortran = 0;
	if (!strncmp(text, "Open MPI", 8)) {
		world = variable_of_mpi("ompi_mpi_comm_world", caller);
		self = variable_of_mpi("ompi_mpi_comm_self", caller);
		mpi.comm_null = variable_of_mpi("ompi_mpi_comm_null", caller);
		mpi.from_fortran = of_mpi("PMPI_Comm_f2c", caller);
		mpi.to_fortran = of_mpi("PMPI_Comm_c2f", caller);
		if (!world || !self || !mpi.comm_null || !mpi.from_fortran || !mpi.to_fortran)
			return false;
		fortran = UINT64_C(1) << 63;
		mpi.has_addresses = true;
		SET(mpi.any_source, -1);
	} else if (strstr(text, "MPICH") || strstr(text, "Intel(R) MPI")) {
		/* What the ABI of MPICH and its kin says. */
		world = 0x44000000;
		self = 0x44000001;
		mpi.comm_null = 0x04000000;
		mask = UINT32_MAX;
		mpi.has_addresses = false;
		SET(mpi.any_source, -2);
	} else {
		return false;
	}
	if (comm_rank(world, rank) || mpi.comm_size(world, &mpi.ranks))
		return false;
	SET(mpi.mask, mask);
	SET(mpi.fortran, fortran);
	SET(mpi.fortran_world, mpi.has_addresses ? (uint32_t)mpi.to_fortran(world) | fortran : (uint64_t)world);
	SET(mpi.world, (uint64_t)world);
	learn(self);
	return true;
}

/* MPI is about to be initialised. Where that is another one than before, as modules may load, handles are of the one or
 * of the other, and which is not known: from then on none is used. */
static COLD void becomes_rank(const void *caller)
{
	int before = errno;
	void *init = of_mpi("PMPI_Init", caller);
	if (!mpi.init) {
		mpi.init = init;
	} else if (init != mpi.init) {
		SET(mpi.several, true);
		SET(mpi.world, ~UINT64_C(0));
	}
	errno = before;
}

/* MPI has been initialised. */
static COLD void became_rank(const void *caller)
{
	int rank = -1;
	if (!mine() || mpi.pid == pid || GET(mpi.several))
		return;
	int before = errno;
	if (look_at_mpi(caller, &rank) && rank >= 0) {
		mpi.pid = pid;
		line_t *line = claim(EVENLY_RANK);
		if (line) {
			begin_write(line);
			SET(line->object, (uint32_t)rank);
			SET(line->region, (uint32_t)mpi.ranks);
			end_write(line);
		}
		joins_ranks((uint32_t)mpi.ranks);
		calls.first = true;
	}
	errno = before;
}

static __thread struct evenly_stamp stamp;

EXPORT struct evenly_stamp *evenly_waiting_stamp(void);
struct evenly_stamp *evenly_waiting_stamp(void)
{
	return &stamp;
}

/* As `enter` and `leave`, beside the MPI probe, where that is behind: it takes the reading of the counter with
 * which the call was entered, and leaves the one that it made at the end. */
static inline void enter_mpi(line_t *line, uint8_t state, uint32_t object)
{
	uint64_t t = ticks();
	change_at(line, state, object, ns_at(t));
	stamp.ticks = t;
	stamp.of = EVENLY_STAMP_ENTERED;
}

static inline void leave_mpi(line_t **entered)
{
	uint64_t t = stamp.of == EVENLY_STAMP_LEFT ? stamp.ticks : ticks();
	stamp.of = EVENLY_STAMP_NONE;
	if (!has_waited(*entered))
		return;
	goes_on_with_ranks();
	change_at(*entered, EVENLY_COMPUTING, 0, ns_at(t));
	here.outer = NULL;
}

/* Whom it waits for is looked for only where that is to be published. */
#define WAITS_IN_MPI(state, object)                                                     \
	line_t *entered __attribute__((cleanup(leave_mpi))) =                           \
		begins_to_wait(__builtin_frame_address(0));                             \
	if (entered)                                                                    \
		enter_mpi(entered, state, comes(object, CALLER))

#define FORTRAN(symbol, n, kind, object, before, after)      \
	EXPORT void symbol(P##n);                            \
	void symbol(P##n)                                    \
	{                                                    \
		before;                                      \
		void (*next)(P##n) = NEXT_OF_MPI(#symbol);   \
		WAITS_IN_MPI(EVENLY_##kind, object);         \
		stamp.caller = CALLER;                       \
		next(A##n);                                  \
		after;                                       \
	}
#define IN_C(name, n, kind, object, before, after)                     \
	EXPORT int MPI_##name(P##n);                                   \
	int MPI_##name(P##n)                                           \
	{                                                              \
		before;                                                \
		int (*next)(P##n) = NEXT_OF_MPI("MPI_" #name);         \
		WAITS_IN_MPI(EVENLY_##kind, object);                   \
		stamp.caller = CALLER;                                 \
		int result = next(A##n);                               \
		after;                                                 \
		return result;                                         \
	}
#define NOTHING (void)0
/* Of either form. */
#define IN_FORTRAN(fortran, n, kind, object, before, after)                           \
	FORTRAN(mpi_##fortran##_, n, kind, object, before, after)                     \
	FORTRAN(mpi_##fortran##_f08_, n, kind, object, before, after)
#define CALL(name, fortran, n, kind)                                                  \
	IN_C(name, n, kind, CALL_##name, NOTHING, NOTHING)                            \
	IN_FORTRAN(fortran, WITH_ERROR_##n, kind, CALL_##name, NOTHING, NOTHING)
#define CALL_PEER(name, fortran, n, kind, peer, comm)                                 \
	IN_C(name, n, kind, IN_C_FOR(name, a##peer, a##comm), NOTHING, NOTHING)       \
	IN_FORTRAN(fortran, WITH_ERROR_##n, kind, IN_FORTRAN_FOR(name, a##peer, a##comm), NOTHING, NOTHING)
#define CALL_ALL(name, fortran, n, kind, comm)                                        \
	IN_C(name, n, kind, IN_C_FOR_ALL(name, a##comm), NOTHING, NOTHING)            \
	IN_FORTRAN(fortran, WITH_ERROR_##n, kind, IN_FORTRAN_FOR_ALL(name, a##comm), NOTHING, NOTHING)
/* The error is behind what C has. */
#define CALL_NEW(name, fortran, n, kind, made)                                        \
	IN_C(name, n, kind, CALL_##name, NOTHING, made_in_c(entered, result, a##made)) \
	IN_FORTRAN(fortran, WITH_ERROR_##n, kind, CALL_##name, NOTHING,               \
		made_in_fortran(entered, (const int *)a##n, a##made))
#define CALL_GONE(name, fortran, n, kind)                                             \
	IN_C(name, n, kind, CALL_##name, gone_in_c(a0), NOTHING)                      \
	IN_FORTRAN(fortran, WITH_ERROR_##n, kind, CALL_##name, gone_in_fortran(a0), NOTHING)
#define CALL_INIT(name, fortran, n, kind)                                             \
	IN_C(name, n, kind, CALL_##name, becomes_rank(CALLER), became_rank(CALLER))   \
	IN_FORTRAN(fortran, WITH_ERROR_##n, kind, CALL_##name, becomes_rank(CALLER), became_rank(CALLER))
#define CALL_TEXT(name, fortran, n, kind)                                             \
	IN_C(name, n, kind, CALL_##name, NOTHING, NOTHING)                            \
	IN_FORTRAN(fortran, WITH_TEXTS_##n, kind, CALL_##name, NOTHING, NOTHING)
/* Programs that ask whether there are such calls find them only where there are. */
#ifdef EVENLY_MPI_LARGE
#define CALL_LARGE(name, n, kind) IN_C(name, n, kind, CALL_##name, NOTHING, NOTHING)
#define CALL_LARGE_PEER(name, n, kind, peer, comm)                                    \
	IN_C(name, n, kind, IN_C_FOR(name, a##peer, a##comm), NOTHING, NOTHING)
#define CALL_LARGE_ALL(name, n, kind, comm)                                           \
	IN_C(name, n, kind, IN_C_FOR_ALL(name, a##comm), NOTHING, NOTHING)
#else
#define CALL_LARGE(name, n, kind)
#define CALL_LARGE_PEER(name, n, kind, peer, comm)
#define CALL_LARGE_ALL(name, n, kind, comm)
#endif
#include "mpi_calls.h"
/* Windows whose address Fortran takes as a type(c_ptr). */
FORTRAN(mpi_win_allocate_cptr_, 7, COLLECTIVE, CALL_Win_allocate, NOTHING, NOTHING)
FORTRAN(mpi_win_allocate_shared_cptr_, 7, COLLECTIVE, CALL_Win_allocate_shared, NOTHING, NOTHING)

#endif
