//! Fetches debug files through `debuginfod-find` and its cache.
//!
//! A server is asked only if the user has set `DEBUGINFOD_URLS`, because the request discloses which program is
//! traced. The fetched file may be hostile, and is used only if its build-id is the requested one.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use tiptoe_price::own;

const URLS: &str = "DEBUGINFOD_URLS";
/// The time-out of `debuginfod-find` in seconds if the user has set none. The default of 90 s is too long.
const TIMEOUT: (&str, &str) = ("DEBUGINFOD_TIMEOUT", "10");

/// Returns the cache folder of `debuginfod-find`, if the folder exists.
pub fn cache() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let variables = ["DEBUGINFOD_CACHE_PATH", "XDG_CACHE_HOME", "HOME"];
        let [own, caches, home] = variables.map(|name| env::var_os(name).map(PathBuf::from));
        cache_of(own, caches, home).filter(|folder| folder.is_dir())
    };
    FOLDER.get_or_init(find).as_deref()
}

/// Fetches the debug file with this build-id (hexadecimal). Returns the file's path.
pub fn fetch(build_id: &str) -> Option<PathBuf> {
    env::var_os(URLS).filter(|urls| !urls.is_empty())?;
    let mut client = Command::new("debuginfod-find");
    client.args(["debuginfo", build_id]);
    if env::var_os(TIMEOUT.0).is_none() {
        client.env(TIMEOUT.0, TIMEOUT.1);
    }
    client.stdin(Stdio::null()).stderr(Stdio::null());
    let output = own::with_helper(|| client.output()).ok()?;
    let path = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| path.trim_end().into())
}

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
