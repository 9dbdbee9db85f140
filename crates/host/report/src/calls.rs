//! Formats recorded calls, one line each.

use tiptoe_session::Call;

use crate::columns::{joined, left};
use crate::number::since_start;
use crate::{Options, event_name, printable, printable_lines};

const REGISTERS: [&str; 2] = ["rdi", "rsi"];
/// Narrower terminals get narrower columns, so that one call fits on a line.
const WIDE: usize = 110;

/// Returns one call: seconds since the start, thread, event, and at most two arguments or registers. On a narrow
/// terminal, the call may take several lines, and the program's name is omitted if the thread has the same name.
pub fn call(call: &Call, options: &Options) -> String {
    let name = event_name(call.event);
    let comm = printable(call.comm);
    let own = name
        .strip_prefix(&*comm)
        .and_then(|rest| rest.strip_prefix(':'));
    let event = joined(own.filter(|_| is_narrow(options)).unwrap_or(&name));
    let arguments = [call.arg0, call.arg1].into_iter().zip(REGISTERS);
    let arguments = arguments.filter_map(|(value, register)| {
        let value = argument(value?);
        Some(match call.are_registers {
            true => format!("{register}={value}"),
            false => value,
        })
    });
    let arguments: Vec<String> = arguments.collect();
    let lines = options.wrapped(
        &moment(call.at_ns, call.comm, call.tid, options),
        format!("{event}  {}", arguments.join(" ")).trim_end(),
    );
    printable_lines(&lines.join("\n"))
}

/// Returns the beginning of a line of a running trace: seconds since the start, and the thread.
pub(crate) fn moment(at_ns: u64, comm: &str, tid: u32, options: &Options) -> String {
    let at = since_start(at_ns);
    let who = format!("{}/{tid}", printable(comm));
    match is_narrow(options) {
        true => format!("{:>11}  {}  ", at.trim_start(), left(&who, 18)),
        false => format!("{at}  {}  ", left(&who, 23)),
    }
}

fn is_narrow(options: &Options) -> bool {
    options.width.is_some_and(|width| width < WIDE)
}

/// Formats a small number as decimal, and a larger number, which may be an address, as hexadecimal.
fn argument(value: u64) -> String {
    const SMALL: i64 = 1 << 16;
    match value as i64 {
        small if (-SMALL..=SMALL).contains(&small) => small.to_string(),
        _ => format!("{value:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_line;

    #[test]
    fn calls_of_a_server_fit_80_columns() {
        let one = Call {
            at_ns: 24_445_313,
            tid: 20056,
            comm: "redis-server",
            event: "uprobe:redis-server:dictFind",
            arg0: Some(0x7f7f_0cac_dcc0),
            arg1: Some(0x7f7f_0cbf_d4c3),
            are_registers: true,
        };
        let of_library = Call {
            event: "uprobe:libc.so.6:malloc",
            arg0: Some(24),
            are_registers: false,
            ..one
        };
        for (width, one, expected) in [
            (
                80,
                &one,
                "0.024445313  redis-server/20056  dictFind  rdi=0x7f7f0cacdcc0 rsi=0x7f7f0cbfd4c3",
            ),
            (
                80,
                &of_library,
                "0.024445313  redis-server/20056  libc.so.6:malloc  24 0x7f7f0cbfd4c3",
            ),
            (
                110,
                &one,
                "     0.024445313  redis-server/20056       redis-server:dictFind  rdi=0x7f7f0cacdcc0 rsi=0x7f7f0cbfd4c3",
            ),
        ] {
            let options = Options {
                width: Some(width),
                ..Options::default()
            };
            assert_eq!(call(one, &options), expected);
        }
    }

    #[test]
    fn a_call_is_one_line_although_its_comm_has_a_line_end() {
        let one = Call {
            at_ns: 1_002_003_004,
            tid: 42,
            comm: "a\nb",
            event: "uprobe:redis-server:dictFind",
            arg0: Some(u64::MAX),
            arg1: Some(0x7fff_1234_5678),
            are_registers: false,
        };
        let line = call(&one, &Options::default());
        assert_eq!(
            line,
            "     1.002003004  a\\nb/42                  redis-server:dictFind  -1 0x7fff12345678"
        );
        let json = json_line(&one).expect("plain");
        assert!(
            json.starts_with("{\"at_ns\":1002003004,\"tid\":42,"),
            "{json}"
        );
        assert!(json.ends_with("\"arg0\":18446744073709551615,\"arg1\":140733498807928}\n"));
        let registers = Call {
            are_registers: true,
            ..one
        };
        let line = call(&registers, &Options::default());
        assert!(line.ends_with("  rdi=-1 rsi=0x7fff12345678"), "{line}");
        let none = Call {
            arg0: None,
            arg1: None,
            ..one
        };
        let line = call(&none, &Options::default());
        assert!(line.ends_with("  redis-server:dictFind"), "{line}");
        let json = json_line(&none).expect("plain");
        assert!(!json.contains("arg"), "{json}");
    }
}
