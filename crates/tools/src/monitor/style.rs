//! Colours and frames that all parts of the picture share.

use ratatui::style::{Color, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, BorderType};

pub(super) const DIM: Style = Style::new().fg(Color::DarkGray);
pub(super) const LIVE: Style = Style::new().fg(Color::Green);
pub(super) const RESERVED: Style = Style::new().fg(Color::Blue);
pub(super) const OUT: Style = Style::new().fg(Color::Magenta);

/// A frame with a title.
pub(super) fn panel<'a>(title: impl Into<Line<'a>>) -> Block<'a> {
    Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(DIM)
        .title_top(title)
}
