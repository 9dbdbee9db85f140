//! Builds the programs of `tests/targets`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use crate::process::output;
use crate::{installed, root, turn};

/// Builds `tests/targets/NAME.{c,cc,rs}` with the flags of its first line.
pub fn target(name: &str) -> PathBuf {
    target_with(name, &[]).unwrap_or_else(|log| panic!("{name}: {log}"))
}

/// Builds a target with additional flags, which become part of the program's name, as in `hot-static`. Fails with
/// the compiler's message.
pub fn target_with(name: &str, flags: &[&str]) -> Result<PathBuf, String> {
    let source = source(name);
    build(&folder(), &source, compiler(&source), name, flags)
}

/// Builds a target into `folder`. The flags do not change the program's name.
pub fn target_of(folder: &Path, name: &str, flags: &[&str]) -> PathBuf {
    std::fs::create_dir_all(folder).expect("target is writable");
    let source = source(name);
    let mut compiler = compiler(&source);
    // The flags follow the source, because the linker skips libraries to which no earlier file refers.
    compiler.args(flags);
    let built = build(folder, &source, compiler, name, &[]);
    built.unwrap_or_else(|log| panic!("{name}: {log}"))
}

/// Returns an example of `tiptoe-targets`.
pub fn rust_target(name: &str) -> PathBuf {
    let path = crate::tiptoe::built().join("examples").join(name);
    assert!(
        path.exists(),
        "no {}: run `cargo build -p tiptoe-targets --examples`",
        path.display()
    );
    path
}

/// Builds a C target with musl.
pub fn musl_target(name: &str, flags: &[&str]) -> Result<PathBuf, String> {
    let mut compiler = Command::new("musl-gcc");
    // The kernel's headers are in these folders; musl has none.
    for folder in ["/usr/include", "/usr/include/x86_64-linux-gnu"] {
        compiler.args(["-idirafter", folder]);
    }
    compiler.arg("-g0");
    let name_here = format!("{name}-musl");
    build(&folder(), &source(name), compiler, &name_here, flags)
}

/// Builds a Go target.
pub fn go_target(name: &str, flags: &[&str]) -> Result<PathBuf, String> {
    let source = source(name);
    let text = std::fs::read_to_string(&source).map_err(|error| error.to_string())?;
    let mut compiler = Command::new(installed("go").ok_or("go is not installed")?);
    compiler.arg("build").args(flags).envs([
        ("GOCACHE", folder().join("go").into_os_string()),
        ("GOFLAGS", "".into()),
        (
            "CGO_ENABLED",
            i32::from(text.contains("import \"C\"")).to_string().into(),
        ),
    ]);
    build(
        &folder(),
        &source,
        compiler,
        &file_name(name, &[], flags),
        &[],
    )
}

/// Returns a Java target's command.
pub fn java_target(name: &str) -> Result<(PathBuf, [String; 3]), String> {
    let [java, javac] =
        ["java", "javac"].map(|name| installed(name).ok_or(format!("{name} is not installed")));
    let classes = folder().join("java");
    let class = classes.join(name).with_extension("class");
    let _turn = turn::wait_for_file(&folder().join(format!("{name}-java.turn")));
    if !is_fresh(&class) {
        let built = output(
            Command::new(javac?)
                .arg("-d")
                .arg(&classes)
                .arg(source(name)),
        );
        if !built.status.success() {
            return Err(String::from_utf8_lossy(&built.stderr).into_owned());
        }
    }
    let classes = classes.display().to_string();
    Ok((java?, ["-cp".to_owned(), classes, name.to_owned()]))
}

fn build(
    folder: &Path,
    source: &Path,
    mut compiler: Command,
    name: &str,
    flags: &[&str],
) -> Result<PathBuf, String> {
    let own = own_flags(source);
    let built = folder.join(file_name(name, &own, flags));
    // A second build of the same target would replace a running program.
    let _turn = turn::wait_for_file(&built.with_extension("turn"));
    if is_fresh(&built) {
        return Ok(built);
    }
    // A compiler may be killed, so the file is renamed when complete.
    let part = built.with_extension("part");
    let output = compiler
        .args(["-o".as_ref(), part.as_os_str(), source.as_os_str()])
        .args(own.iter().map(String::as_str).chain(flags.iter().copied()))
        .current_dir(sources())
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    std::fs::rename(&part, &built).map_err(|error| error.to_string())?;
    Ok(built)
}

/// Returns the folder of built targets.
pub fn folder() -> PathBuf {
    let folder = root().join("target/test-targets");
    std::fs::create_dir_all(&folder).expect("target is writable");
    folder
}

fn sources() -> PathBuf {
    root().join("tests/targets")
}

fn source(name: &str) -> PathBuf {
    ["c", "cc", "rs", "go", "java"]
        .iter()
        .map(|extension| sources().join(name).with_extension(extension))
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("no target `{name}`"))
}

fn compiler(source: &Path) -> Command {
    let (program, flags): (_, &[&str]) =
        match source.extension().and_then(|extension| extension.to_str()) {
            Some("rs") => ("rustc", &["--edition=2024"]),
            Some("cc") => ("g++", &["-Wall", "-Wextra", "-g0"]),
            _ => ("gcc", &["-Wall", "-Wextra", "-g0"]),
        };
    let mut command = Command::new(program);
    command.args(flags);
    command
}

fn own_flags(source: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(source).expect("a target's source");
    let flags = text
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("// cflags:"));
    match source.extension() {
        Some(extension) if extension == "rs" => vec!["-O".into()],
        Some(extension) if extension == "go" => Vec::new(),
        _ => flags
            .unwrap_or("-O2")
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
    }
}

fn file_name(name: &str, own: &[String], flags: &[&str]) -> String {
    if own.iter().any(|flag| flag == "-shared") {
        return format!("lib{name}.so");
    }
    let flags = flags.iter().filter(|flag| !flag.contains('/'));
    flags.fold(name.to_owned(), |name, flag| name + &flag.replace('=', "-"))
}

fn is_fresh(built: &Path) -> bool {
    let changed = |path: &Path| {
        path.metadata()
            .and_then(|metadata| metadata.modified())
            .ok()
    };
    let newest = std::fs::read_dir(sources())
        .expect("tests/targets")
        .flatten();
    let newest = newest
        .filter_map(|entry| changed(&entry.path()))
        .max()
        .unwrap_or(SystemTime::UNIX_EPOCH);
    changed(built).is_some_and(|when| when > newest)
}
