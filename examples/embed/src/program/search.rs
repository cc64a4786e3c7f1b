//! `embed search`: one query, or as many as the user types.

use std::io::{BufRead, IsTerminal, Write};

use embed::{Error, Hit, Index, Model, Result};
use lapidary::Gpu;
use serde_json::json;

use super::output::Output;
use super::{Setup, once_more};

pub(super) fn run(
    query: &str,
    top: usize,
    setup: &Setup,
    out: &mut Output<impl Write>,
) -> Result<()> {
    let path = setup.index_file();
    if !path.is_file() {
        let reason = "there is no such index. Make one: `embed index`, or name one with `--index`";
        return Err(Error::file(&path.display().to_string(), reason));
    }
    let (gpu, model) = setup.open()?;
    let index = Index::load(&gpu, &path, pollster::block_on(model.id())?)?;
    let asked = Asked {
        gpu,
        model,
        index,
        top,
        is_json: setup.json,
    };
    if !query.is_empty() {
        return asked.answer(query, out);
    }
    let is_terminal = std::io::stdin().is_terminal();
    if is_terminal {
        out.line(format_args!(
            "{} sentences. What are you looking for? (An empty line ends.)",
            asked.index.entries().len()
        ))?;
    }
    let mut lines = std::io::stdin().lock().lines();
    while !out.is_closed() {
        if is_terminal {
            out.prompt("> ")?;
        }
        let line = lines.next().transpose();
        let line = line.map_err(|error| {
            Error::Input(format!(
                "the query cannot be read: {error}. Type it in UTF-8"
            ))
        })?;
        match line {
            Some(line) if !line.trim().is_empty() => asked.answer(&line, out)?,
            _ => break,
        }
    }
    Ok(())
}

/// The objects that answer queries.
struct Asked {
    gpu: Gpu,
    model: Model,
    index: Index,
    top: usize,
    is_json: bool,
}

impl Asked {
    fn answer(&self, query: &str, out: &mut Output<impl Write>) -> Result<()> {
        let (hits, cut_from) = once_more(&self.gpu, || {
            let (vector, cut_from) = self.model.query(query)?;
            let hits = pollster::block_on(self.index.search(&vector, self.top))?;
            Ok((hits, cut_from))
        })?;
        if self.is_json {
            return out.line(json!({ "query": query, "cut_from": cut_from, "hits": hits }));
        }
        if let Some(tokens) = cut_from {
            out.line(format_args!(
                "The query has {tokens} tokens, and the model reads {}: its end is not looked for.",
                self.model.config.longest
            ))?;
        }
        for Hit { score, entry } in &hits {
            out.line(format_args!("{score:.3}  {}", entry.text))?;
            out.line(format_args!("       {}:{}", entry.place, entry.line))?;
        }
        Ok(())
    }
}
