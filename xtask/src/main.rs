//! Prints the software bill of materials of the command: `scripts/sbom.sh`.

use xtask::dependencies::Dependencies;
use xtask::sbom;

fn main() {
    println!("{:#}", sbom::document(&Dependencies::resolve()));
}
