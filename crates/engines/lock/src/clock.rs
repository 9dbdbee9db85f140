//! The clock by which waits and holds are timed.

/// Nanoseconds since the clock was first read.
#[cfg(feature = "std")]
pub(crate) fn now() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;

    static FIRST: OnceLock<Instant> = OnceLock::new();
    let since = FIRST.get_or_init(Instant::now).elapsed();
    since.as_secs() * 1_000_000_000 + u64::from(since.subsec_nanos())
}

/// There is none.
#[cfg(not(feature = "std"))]
pub(crate) fn now() -> u64 {
    0
}
