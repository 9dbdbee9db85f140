//! The `tiptoe` command.
fn main() {}
