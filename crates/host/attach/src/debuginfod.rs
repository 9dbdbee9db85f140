//! Debug files of debuginfod servers: the cache of its client, and the client, `debuginfod-find`.
//!
//! A server is asked only if the user has set `DEBUGINFOD_URLS`, because the request shows which
//! program is traced. What it answers is as hostile as any file, and is used only if its build-id is
//! the requested one.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The variable with the servers' addresses.
const URLS: &str = "DEBUGINFOD_URLS";
/// The variable with the seconds for which the client waits without progress, and their number if it
/// is not set. The client's own default is 90, and a user waits.
const TIMEOUT: (&str, &str) = ("DEBUGINFOD_TIMEOUT", "10");

/// Returns the folder where the client keeps files, if it exists.
pub fn cache() -> Option<PathBuf> {
    let variables = ["DEBUGINFOD_CACHE_PATH", "XDG_CACHE_HOME", "HOME"];
    let [own, caches, home] = variables.map(env::var_os);
    cache_of(
        own.map(Into::into),
        caches.map(Into::into),
        home.map(Into::into),
    )
    .filter(|folder| folder.is_dir())
}

/// Asks for debug information by its build-id, in hexadecimal digits. Returns the path of the file.
pub fn fetch(build_id: &str) -> Option<PathBuf> {
    env::var_os(URLS).filter(|urls| !urls.is_empty())?;
    let mut client = Command::new("debuginfod-find");
    client.args(["debuginfo", build_id]);
    if env::var_os(TIMEOUT.0).is_none() {
        client.env(TIMEOUT.0, TIMEOUT.1);
    }
    client.stdin(Stdio::null()).stderr(Stdio::null());
    let output = client.output().ok()?;
    let path = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| path.trim_end().into())
}

/// Returns the client's folder by the values of the variables.
fn cache_of(
    own: Option<PathBuf>,
    caches: Option<PathBuf>,
    home: Option<PathBuf>,
) -> Option<PathBuf> {
    let below_home = || Some(home?.join(".cache"));
    let client = |caches: PathBuf| caches.join("debuginfod_client");
    let folder = own.or_else(|| caches.or_else(below_home).map(client));
    folder.filter(|folder| folder.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_where_the_client_has_it() {
        let check = |[own, caches, home]: [&str; 3], expected: Option<&str>| {
            let path = |text: &str| (!text.is_empty()).then(|| text.into());
            let found = cache_of(path(own), path(caches), path(home));
            assert_eq!(found, expected.map(PathBuf::from));
        };
        check(["/own", "/caches", "/home"], Some("/own"));
        check(["", "/caches", "/home"], Some("/caches/debuginfod_client"));
        check(["", "", "/home"], Some("/home/.cache/debuginfod_client"));
        check(["", "", ""], None);
        check(["", "", "relative"], None);
    }
}
