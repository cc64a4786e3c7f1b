//! `embed search`: one query, or as many as somebody types.

use std::io::{BufRead, IsTerminal, Write};

use embed::{Error, Hit, Index, Model, Result};
use serde_json::json;

use super::Setup;

pub(super) fn run(query: &str, top: usize, setup: &Setup) -> Result<()> {
    let path = setup.index_file();
    if !path.is_file() {
        let reason = "there is no such index. Make one: `embed index`, or name one with `--index`";
        return Err(Error::file(&path.display().to_string(), reason));
    }
    let (gpu, model) = setup.open()?;
    let index = Index::load(&gpu, &path)?;
    if !query.is_empty() {
        return answer(&model, &index, query, top, setup.json);
    }
    let is_terminal = std::io::stdin().is_terminal();
    if is_terminal {
        println!(
            "{} sentences. What are you looking for? (An empty line ends.)",
            index.entries().len()
        );
    }
    let mut lines = std::io::stdin().lock().lines();
    loop {
        if is_terminal {
            print!("> ");
            std::io::stdout()
                .flush()
                .map_err(|error| Error::Input(error.to_string()))?;
        }
        let line = lines.next().transpose();
        let Some(line) =
            line.map_err(|error| Error::Input(format!("the query cannot be read: {error}")))?
        else {
            return Ok(());
        };
        if line.trim().is_empty() {
            return Ok(());
        }
        answer(&model, &index, &line, top, setup.json)?;
    }
}

fn answer(model: &Model, index: &Index, query: &str, top: usize, is_json: bool) -> Result<()> {
    let (vector, cut_from) = model.query(query)?;
    let hits = pollster::block_on(index.search(&vector, top))?;
    if is_json {
        println!(
            "{}",
            json!({ "query": query, "cut_from": cut_from, "hits": hits })
        );
        return Ok(());
    }
    if let Some(tokens) = cut_from {
        println!(
            "The query has {tokens} tokens, and the model reads {}: its end is not looked for.",
            model.config.longest
        );
    }
    for Hit { score, entry } in &hits {
        println!("{score:.3}  {}", entry.text);
        println!("       {}:{}", entry.place, entry.line);
    }
    Ok(())
}
