//! Rust programs that tests trace, in a package because they are optimized and the tests are not.
