//! Rust programs that tests trace. They have their own package, because they are optimized and the tests are not.
