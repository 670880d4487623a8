//! What a thread tells its CPU.

/// The caller writes there soon: the cache line may come meanwhile. It goes nowhere where the CPU has no such instruction.
pub(crate) fn writes_soon<T>(to: &T) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    {
        let to = std::ptr::from_ref(to);
        // SAFETY: it changes nothing that a program can see, whatever is there. Where a CPU does not know it, it does nothing.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) to, options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    let _ = to;
}
