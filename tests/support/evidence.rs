//! Saves the state of a failed test's processes.

use std::fs;
use std::path::Path;
use std::process::Command;

const OF_PROCESS: &[&str] = &["cmdline", "status", "maps", "limits", "cgroup"];
const OF_THREAD: &[&str] = &["comm", "status", "wchan", "stack", "syscall"];
/// Runs gdb with a limit, because it may wait for a process that does not stop.
const GDB: &[&str] = &["-k", "1", "10", "gdb", "-nx", "-batch", "-ex"];

/// Writes each process's state and stacks into `folder`. Skips unreadable files, because a process may end.
pub fn save(folder: &Path, pids: &[i32]) {
    if fs::create_dir_all(folder).is_err() {
        return;
    }
    for pid in pids {
        let process = format!("/proc/{pid}");
        let name = fs::read_to_string(format!("{process}/comm")).unwrap_or_default();
        let safe: String = name
            .chars()
            .filter(|letter| letter.is_alphanumeric())
            .collect();
        let text = of_process(Path::new(&process));
        let _ = fs::write(folder.join(format!("{safe}-{pid}.txt")), text);
        let gdb = Command::new("timeout")
            .args(GDB)
            .arg("thread apply all bt")
            .args(["-p", &pid.to_string()])
            .output();
        if let Ok(output) = gdb {
            let _ = fs::write(folder.join(format!("{safe}-{pid}.gdb")), output.stdout);
        }
    }
}

fn of_process(process: &Path) -> String {
    let mut text = String::new();
    append(&mut text, process, OF_PROCESS);
    let threads = fs::read_dir(process.join("task"));
    for thread in threads.into_iter().flatten().flatten() {
        append(&mut text, &thread.path(), OF_THREAD);
    }
    text
}

fn append(text: &mut String, folder: &Path, names: &[&str]) {
    for name in names {
        let path = folder.join(name);
        let bytes = fs::read(&path).unwrap_or_default();
        let content = String::from_utf8_lossy(&bytes).replace('\0', " ");
        *text += &format!("== {}\n{}\n", path.display(), content.trim_end());
    }
}
