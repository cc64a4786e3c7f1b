//! Colours of the output, and printable forms of names that other people chose.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use ratatui::buffer::Buffer;
use ratatui::crossterm::terminal;
use ratatui::style::Color;

use lapidary_core::internal::{printable, printable_end};

/// Colours of rows in a table and of lines in a chart.
pub(crate) const SERIES: [Color; 5] = [
    Color::Cyan,
    Color::Yellow,
    Color::Magenta,
    Color::Green,
    Color::Red,
];

/// Longer names are cut off.
const MOST_COLUMNS: usize = 400;

/// A text that other people chose (the name of an adapter, a trace or a tensor), without characters
/// that a terminal would execute or hide.
pub(crate) fn clean(text: &str) -> String {
    printable(text, MOST_COLUMNS)
}

/// As [`clean`], for a path.
pub(crate) fn clean_path(path: &Path) -> String {
    printable_end(&path.to_string_lossy(), MOST_COLUMNS)
}

/// When to print in colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum When {
    /// On a terminal, unless the environment variable NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Whether to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    colours: bool,
}

impl Style {
    pub(crate) fn new(when: When) -> Style {
        let is_unwanted = || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let colours = match when {
            When::Always => true,
            When::Never => false,
            When::Auto => io::stdout().is_terminal() && !is_unwanted(),
        };
        Style { colours }
    }

    pub(crate) fn has_colours(self) -> bool {
        self.colours
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    pub(crate) fn good(self, text: &str) -> String {
        self.wrap("32", text)
    }

    pub(crate) fn bad(self, text: &str) -> String {
        self.wrap("31", text)
    }

    /// The text in the colour of series `number`.
    pub(crate) fn series(self, number: usize, text: &str) -> String {
        self.wrap(code(SERIES[number % SERIES.len()]), text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        match self.colours {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }

    /// Prints cells without the blanks at the ends of lines.
    pub(crate) fn print_cells(self, out: &mut dyn Write, cells: &Buffer) -> io::Result<()> {
        let area = cells.area;
        for y in area.top()..area.bottom() {
            let row = || (area.left()..area.right()).map(move |x| &cells[(x, y)]);
            let blank = row().rev().take_while(|cell| cell.symbol() == " ").count();
            let mut before = Color::Reset;
            for cell in row().take(usize::from(area.width) - blank) {
                if self.colours && cell.fg != before {
                    write!(out, "\x1b[{}m", code(cell.fg))?;
                    before = cell.fg;
                }
                out.write_all(cell.symbol().as_bytes())?;
            }
            let reset = if before == Color::Reset {
                ""
            } else {
                "\x1b[0m"
            };
            writeln!(out, "{reset}")?;
        }
        Ok(())
    }
}

/// The escape sequence of a colour; that of the default colour for all that we do not use.
fn code(colour: Color) -> &'static str {
    match colour {
        Color::Red => "31",
        Color::Green => "32",
        Color::Yellow => "33",
        Color::Magenta => "35",
        Color::Cyan => "36",
        Color::DarkGray => "90",
        _ => "39",
    }
}

/// Columns of the terminal; 100 if there is none.
pub(crate) fn width() -> u16 {
    let columns = terminal::size().ok().map(|(columns, _)| columns);
    columns
        .filter(|columns| *columns >= 40 && io::stdout().is_terminal())
        .unwrap_or(100)
}
