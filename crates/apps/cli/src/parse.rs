//! Reads the command line with clap, whose help and errors must have tiptoe's form.

use std::ffi::OsString;
use std::io::{self, IsTerminal};

use clap::{ColorChoice, CommandFactory, FromArgMatches, ValueEnum};

use crate::args::Cli;

const WIDTH: usize = 80;

pub fn parse() -> Result<Cli, clap::Error> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let color = color(&words);
    set_color(color);
    let mut command = Cli::command().color(color);
    if !io::stdout().is_terminal() {
        command = command.term_width(WIDTH);
    }
    let matches = command.try_get_matches_from_mut(words)?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    set_color(cli.color);
    Ok(cli)
}

fn set_color(color: ColorChoice) {
    let color = match color {
        ColorChoice::Auto => anstream::ColorChoice::Auto,
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
    };
    color.write_global();
}

/// Finds the value of `--color` for help and errors, which clap formats before it returns options. The value may
/// belong to the command that `stat` runs, so [`parse`] later applies clap's value instead.
fn color(words: &[OsString]) -> ColorChoice {
    let words = words.iter().filter_map(|word| word.to_str());
    let mut own = words.take_while(|word| *word != "--");
    let value = own.find_map(|word| word.strip_prefix("--color"));
    let value = match value {
        Some("") => own.next(),
        Some(value) => value.strip_prefix('='),
        None => None,
    };
    let choice = value.and_then(|value| ColorChoice::from_str(value, false).ok());
    choice.unwrap_or(ColorChoice::Auto)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_colour_is_known_before_the_words_are_read() {
        for (line, choice) in [
            ("tiptoe probe f", ColorChoice::Auto),
            ("tiptoe --color never probe f", ColorChoice::Never),
            ("tiptoe probe --color=always --help", ColorChoice::Always),
            ("tiptoe probe f -- ls --color=always", ColorChoice::Auto),
            ("tiptoe probe --color", ColorChoice::Auto),
            ("tiptoe probe --color=pink", ColorChoice::Auto),
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(color(&words), choice, "{line}");
        }
    }
}
