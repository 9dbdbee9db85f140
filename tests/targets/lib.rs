//! Programs in Rust that tests trace, as examples: a package of their own, because they are optimized as a user's program is
//! and the tests are not.
