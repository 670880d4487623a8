/*
 * What libgomp exports, of gcc 4.4 to 16, and what that means to barriers that are replaced (waiting_plain.h).
 *
 * Each function that it exports for compiled code (GOMP_*, GOACC_*) is either followed by a wrapper of waiting_openmp.h, or
 * known, or leaves the barriers of the region to the runtime before it acts. A test compares this with the symbols of
 * the library that is installed, and with those of others.
 *
 * Functions for programs (omp_*, acc_*) and for plugins are known but for those that make tasks.
 */
#ifndef EVENLY_GOMP_CALLS_H
#define EVENLY_GOMP_CALLS_H

/* The versions of its symbols. A libgomp that has others has functions that are not listed here. */
#define GOMP_VERSIONS(VERSION) \
	VERSION("OMP_1.0") VERSION("OMP_2.0") VERSION("OMP_3.0") VERSION("OMP_3.1") VERSION("OMP_4.0") VERSION("OMP_4.5") \
	VERSION("OMP_5.0") VERSION("OMP_5.0.1") VERSION("OMP_5.0.2") VERSION("OMP_5.1") VERSION("OMP_5.1.1") \
	VERSION("OMP_5.2") VERSION("GOMP_1.0") VERSION("GOMP_2.0") VERSION("GOMP_3.0") VERSION("GOMP_4.0") \
	VERSION("GOMP_4.0.1") VERSION("GOMP_4.5") VERSION("GOMP_5.0") VERSION("GOMP_5.0.1") VERSION("GOMP_5.1") \
	VERSION("GOMP_5.1.1") VERSION("GOMP_5.1.2") VERSION("GOMP_5.1.3") VERSION("GOMP_6.0") VERSION("GOMP_6.0.1") \
	VERSION("OACC_2.0") VERSION("OACC_2.0.1") VERSION("OACC_2.5") VERSION("OACC_2.5.1") VERSION("OACC_2.6") \
	VERSION("OACC_2.6.1") VERSION("GOACC_2.0") VERSION("GOACC_2.0.1") VERSION("GOACC_2.0.2") VERSION("GOMP_PLUGIN_1.0") \
	VERSION("GOMP_PLUGIN_1.1") VERSION("GOMP_PLUGIN_1.2") VERSION("GOMP_PLUGIN_1.3") VERSION("GOMP_PLUGIN_1.4")

/* Those with a wrapper of waiting_openmp.h. */
#define GOMP_FOLLOWED(CALL) \
	CALL(GOMP_barrier) CALL(GOMP_barrier_cancel) CALL(GOMP_loop_end) CALL(GOMP_loop_end_cancel) \
	CALL(GOMP_parallel) CALL(GOMP_parallel_loop_dynamic) CALL(GOMP_parallel_loop_guided) \
	CALL(GOMP_parallel_loop_maybe_nonmonotonic_runtime) CALL(GOMP_parallel_loop_nonmonotonic_dynamic) \
	CALL(GOMP_parallel_loop_nonmonotonic_guided) CALL(GOMP_parallel_loop_nonmonotonic_runtime) \
	CALL(GOMP_parallel_loop_runtime) CALL(GOMP_parallel_loop_static) CALL(GOMP_parallel_reductions) \
	CALL(GOMP_parallel_sections) CALL(GOMP_sections_end) CALL(GOMP_sections_end_cancel) \
	CALL(GOMP_single_copy_start) CALL(GOMP_task) CALL(GOMP_taskgroup_end) CALL(GOMP_taskloop) \
	CALL(GOMP_taskloop_ull) CALL(GOMP_taskwait) CALL(GOMP_taskwait_depend) \
	CALL(GOMP_workshare_task_reduction_unregister)

/* They neither wait for the team, nor make tasks, nor begin a region: loops, sections, locks, memory. Of loops that are
 * DOACROSS and of cancelling only what cannot come first. */
#define GOMP_KNOWN(CALL) \
	CALL(GOMP_add_alloc) CALL(GOMP_alloc) CALL(GOMP_atomic_end) CALL(GOMP_atomic_start) CALL(GOMP_cancellation_point) \
	CALL(GOMP_critical_end) CALL(GOMP_critical_name_end) CALL(GOMP_critical_name_start) CALL(GOMP_critical_start) \
	CALL(GOMP_doacross_post) CALL(GOMP_doacross_ull_post) CALL(GOMP_doacross_ull_wait) CALL(GOMP_doacross_wait) \
	CALL(GOMP_error) CALL(GOMP_free) CALL(GOMP_is_alloc) CALL(GOMP_loop_dynamic_next) CALL(GOMP_loop_dynamic_start) \
	CALL(GOMP_loop_end_nowait) CALL(GOMP_loop_guided_next) CALL(GOMP_loop_guided_start) \
	CALL(GOMP_loop_maybe_nonmonotonic_runtime_next) CALL(GOMP_loop_maybe_nonmonotonic_runtime_start) \
	CALL(GOMP_loop_nonmonotonic_dynamic_next) CALL(GOMP_loop_nonmonotonic_dynamic_start) \
	CALL(GOMP_loop_nonmonotonic_guided_next) CALL(GOMP_loop_nonmonotonic_guided_start) \
	CALL(GOMP_loop_nonmonotonic_runtime_next) CALL(GOMP_loop_nonmonotonic_runtime_start) \
	CALL(GOMP_loop_ordered_dynamic_next) CALL(GOMP_loop_ordered_dynamic_start) CALL(GOMP_loop_ordered_guided_next) \
	CALL(GOMP_loop_ordered_guided_start) CALL(GOMP_loop_ordered_runtime_next) CALL(GOMP_loop_ordered_runtime_start) \
	CALL(GOMP_loop_ordered_static_next) CALL(GOMP_loop_ordered_static_start) CALL(GOMP_loop_runtime_next) \
	CALL(GOMP_loop_runtime_start) CALL(GOMP_loop_static_next) CALL(GOMP_loop_static_start) \
	CALL(GOMP_loop_ull_dynamic_next) CALL(GOMP_loop_ull_dynamic_start) CALL(GOMP_loop_ull_guided_next) \
	CALL(GOMP_loop_ull_guided_start) CALL(GOMP_loop_ull_maybe_nonmonotonic_runtime_next) \
	CALL(GOMP_loop_ull_maybe_nonmonotonic_runtime_start) CALL(GOMP_loop_ull_nonmonotonic_dynamic_next) \
	CALL(GOMP_loop_ull_nonmonotonic_dynamic_start) CALL(GOMP_loop_ull_nonmonotonic_guided_next) \
	CALL(GOMP_loop_ull_nonmonotonic_guided_start) CALL(GOMP_loop_ull_nonmonotonic_runtime_next) \
	CALL(GOMP_loop_ull_nonmonotonic_runtime_start) CALL(GOMP_loop_ull_ordered_dynamic_next) \
	CALL(GOMP_loop_ull_ordered_dynamic_start) CALL(GOMP_loop_ull_ordered_guided_next) \
	CALL(GOMP_loop_ull_ordered_guided_start) CALL(GOMP_loop_ull_ordered_runtime_next) \
	CALL(GOMP_loop_ull_ordered_runtime_start) CALL(GOMP_loop_ull_ordered_static_next) \
	CALL(GOMP_loop_ull_ordered_static_start) CALL(GOMP_loop_ull_runtime_next) CALL(GOMP_loop_ull_runtime_start) \
	CALL(GOMP_loop_ull_static_next) CALL(GOMP_loop_ull_static_start) CALL(GOMP_offload_register) \
	CALL(GOMP_offload_register_ver) CALL(GOMP_offload_unregister) CALL(GOMP_offload_unregister_ver) \
	CALL(GOMP_ordered_end) CALL(GOMP_ordered_start) CALL(GOMP_sections_end_nowait) CALL(GOMP_sections_next) \
	CALL(GOMP_sections_start) CALL(GOMP_single_start) CALL(GOMP_target_map_indirect_ptr) CALL(GOMP_warning)

/* The others. */
#define GOMP_LEAVING(CALL) \
	CALL(GOACC_data_end) CALL(GOACC_data_start) CALL(GOACC_declare) CALL(GOACC_enter_data) CALL(GOACC_enter_exit_data) \
	CALL(GOACC_exit_data) CALL(GOACC_get_num_threads) CALL(GOACC_get_thread_num) CALL(GOACC_parallel) \
	CALL(GOACC_parallel_keyed) CALL(GOACC_update) CALL(GOACC_wait) CALL(GOMP_cancel) CALL(GOMP_interop) \
	CALL(GOMP_loop_doacross_dynamic_start) CALL(GOMP_loop_doacross_guided_start) CALL(GOMP_loop_doacross_runtime_start) \
	CALL(GOMP_loop_doacross_start) CALL(GOMP_loop_doacross_static_start) CALL(GOMP_loop_ordered_start) \
	CALL(GOMP_loop_start) CALL(GOMP_loop_ull_doacross_dynamic_start) CALL(GOMP_loop_ull_doacross_guided_start) \
	CALL(GOMP_loop_ull_doacross_runtime_start) CALL(GOMP_loop_ull_doacross_start) \
	CALL(GOMP_loop_ull_doacross_static_start) CALL(GOMP_loop_ull_ordered_start) CALL(GOMP_loop_ull_start) \
	CALL(GOMP_parallel_end) CALL(GOMP_parallel_loop_dynamic_start) CALL(GOMP_parallel_loop_guided_start) \
	CALL(GOMP_parallel_loop_runtime_start) CALL(GOMP_parallel_loop_static_start) CALL(GOMP_parallel_sections_start) \
	CALL(GOMP_parallel_start) CALL(GOMP_scope_start) CALL(GOMP_sections2_start) CALL(GOMP_single_copy_end) \
	CALL(GOMP_target) CALL(GOMP_target_data) CALL(GOMP_target_data_ext) CALL(GOMP_target_end_data) \
	CALL(GOMP_target_enter_exit_data) CALL(GOMP_target_ext) CALL(GOMP_target_update) CALL(GOMP_target_update_ext) \
	CALL(GOMP_task_reduction_remap) CALL(GOMP_taskgroup_reduction_register) CALL(GOMP_taskgroup_reduction_unregister) \
	CALL(GOMP_taskgroup_start) CALL(GOMP_taskwait_depend_nowait) CALL(GOMP_taskyield) CALL(GOMP_teams) CALL(GOMP_teams4) \
	CALL(GOMP_teams_reg) CALL(omp_target_memcpy_async) CALL(omp_target_memcpy_rect_async) CALL(omp_target_memset_async)

#endif
