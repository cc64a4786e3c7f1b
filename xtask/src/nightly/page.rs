//! The page of a snapshot in a browser. It opens and works with pointer and keys, its sums agree
//! with the snapshot, and names that a program chose are only ever text.

use std::fs;
use std::path::{Path, PathBuf};

use crate::browser::Browser;
use crate::pictures::{SIZE, write_pages};
use crate::process::{Result, target_dir};

/// Writes the pages with the example and opens each.
pub(crate) fn check() -> Result<String> {
    let folder = target_dir().join("page");
    for option in [None, Some("--many")] {
        write_pages(&folder, option)?;
    }
    let mut page = Page {
        browser: Browser::start(&folder)?,
        folder,
    };
    page.small()?;
    page.compared()?;
    page.many()
}

struct Page {
    browser: Browser,
    folder: PathBuf,
}

impl Page {
    /// A real run: the replayed events end at the statistics, and an opened file gives the same
    /// page.
    fn small(&mut self) -> Result {
        self.open("memory.html")?;
        self.screenshots("memory")?;
        self.agrees()?;
        self.holds("lapidary.model.total.every((live, moment) => live >= 0 && live <= lapidaryReserved(moment))",
            "live bytes are never negative or above the reserved bytes")?;
        self.holds("lapidary.model.stays.slab.subarray(0, lapidary.model.stays.count).every(slab => slab !== 4294967295)",
            "every block has a place")?;
        let told = "JSON.stringify(Object.values(lapidary.model.events).map(column => [...new Float64Array(column.length ? column : [column])].reduce((sum, value, i) => (sum * 31 + value + i) % 1e9, 7)))";
        let embedded = self.browser.evaluate(told)?;
        self.open_file(&self.folder.join("memory.json"))?;
        let opened = self.browser.evaluate(told)?;
        if embedded != opened {
            return Err(format!(
                "the page and the file tell different events: {embedded} and {opened}."
            ));
        }
        self.agrees()?;
        self.groups()?;
        // The dialog of the browser would wait for a person.
        self.browser.evaluate(
            "HTMLInputElement.prototype.click = () => {}, document.querySelector('#compare').click()",
        )?;
        self.open_file(&self.folder.join("memory.json"))?;
        self.holds(
            "lapidary.isDifference && lapidary.docs.length === 2",
            "an opened page compares itself with another file",
        )?;
        self.is_quiet()
    }

    /// Each grouping has all live bytes, and names are cut in the middle.
    fn groups(&mut self) -> Result {
        for grouping in ["beginning", "kind", "type", "tag"] {
            self.browser.evaluate(&format!(
                "(select => {{ select.value = '{grouping}'; select.dispatchEvent(new Event('change')); }})(document.querySelector('#grouping'))"
            ))?;
            self.browser.settle()?;
            self.holds(
                "(({ series, model }) => { const values = new Float64Array(series.width); series.valuesAt(model.events.count, values); \
                 return values.reduce((a, b) => a + b) === model.stats.live_bytes.now; })(lapidary)",
                &format!("the groups by {grouping} have all live bytes"),
            )?;
        }
        self.holds(
            "[...document.querySelectorAll('.who .name')].every(name => name.lastChild.scrollWidth <= name.clientWidth + 1)",
            "the ends of names are visible",
        )
    }

    /// Two snapshots: both maps, and a table whose differences add up.
    fn compared(&mut self) -> Result {
        self.open("compare.html")?;
        self.screenshots("compare")?;
        self.holds(
            "lapidary.isDifference && document.querySelectorAll('.map canvas').length === 2",
            "both maps are there",
        )?;
        self.holds("lapidaryDifference() === lapidary.docs[1].model.stats.live_bytes.now - lapidary.docs[0].model.stats.live_bytes.now",
            "the differences add up to that of all live bytes")?;
        self.holds("lapidary.docs.every(({ grouped }) => grouped.groups.every(group => group.slot === 12 || lapidaryGrowth(group.key) > 0))",
            "only holders that grew are coloured")?;
        self.browser
            .evaluate("document.querySelector('#views button').click()")?;
        self.holds(
            "!lapidary.isDifference && lapidary.model === lapidary.docs[0].model",
            "the first can be looked at alone",
        )?;
        self.is_quiet()
    }

    /// A million events and hostile names.
    fn many(&mut self) -> Result<String> {
        let ready_ms = self.open("many.html")?;
        self.screenshots("many")?;
        self.agrees()?;
        self.holds(
            "document.title === 'Memory snapshot' && !document.querySelector('img')",
            "no name became markup",
        )?;
        self.pointer()?;
        self.keys()?;
        self.filter()?;
        let zoom = self.medians(
            "lapidary.zoomBy(i < 15 ? 0.85 : 1.2, (lapidary.range[0] + lapidary.range[1]) / 2)",
        )?;
        let moment =
            self.medians("lapidary.setMoment((i * 104729 * 137) % lapidary.model.events.count)")?;
        self.is_quiet()?;
        let bytes = fs::metadata(self.folder.join("many.html")).map_or(0, |file| file.len());
        Ok(format!(
            "1,000,000 events: {:.1} MiB, open in {ready_ms} ms, zoomed in {zoom}, another moment in {moment}",
            bytes as f64 / f64::from(1 << 20)
        ))
    }

    fn pointer(&mut self) -> Result {
        let [left, top] = self.corner("#timeline-overlay")?;
        let middle = [left + 700.0, top + 150.0];
        self.browser.mouse("mouseMoved", middle, 0.0)?;
        self.holds("!document.querySelector('#tooltip').hidden && document.querySelector('#tooltip').textContent.includes('live')", "the timeline tells of what the pointer is at")?;
        self.browser
            .evaluate("globalThis.wide = lapidary.range[1] - lapidary.range[0]")?;
        self.browser.mouse("mouseWheel", middle, -400.0)?;
        self.holds(
            "lapidary.range[1] - lapidary.range[0] < 0.6 * wide",
            "the wheel zooms",
        )?;
        self.browser
            .evaluate("globalThis.from = lapidary.range[0]")?;
        self.browser.mouse("mousePressed", middle, 0.0)?;
        self.drag(middle, [left + 900.0, top + 150.0])?;
        self.holds("lapidary.range[0] < from", "a drag moves the timeline")?;
        self.browser.click([left + 400.0, top + 100.0])?;
        self.holds(
            "lapidary.moment > 0 && lapidary.moment < lapidary.model.events.count",
            "a click chooses a moment",
        )?;
        let [left, top] = self.corner(".map canvas")?;
        let block = [left + 10.0, top + 32.0];
        self.browser.mouse("mouseMoved", block, 0.0)?;
        self.holds(
            "document.querySelector('#tooltip').textContent.includes('slab, offset')",
            "the map tells of blocks",
        )?;
        self.browser.click(block)?;
        self.holds(
            "lapidary.selected !== null && document.querySelector('tr.chosen') !== null",
            "a click on a block chooses its holder",
        )
    }

    /// The button is down already and is released at the end.
    fn drag(&mut self, [x, y]: [f64; 2], to: [f64; 2]) -> Result {
        for point in [[(x + to[0]) / 2.0, y], to] {
            let params = format!(
                r#"{{"type":"mouseMoved","x":{},"y":{},"buttons":1,"button":"left"}}"#,
                point[0], point[1]
            );
            self.browser.call("Input.dispatchMouseEvent", &params)?;
        }
        self.browser.mouse("mouseReleased", to, 0.0)
    }

    fn keys(&mut self) -> Result {
        self.browser
            .evaluate("document.querySelector('#timeline-overlay').focus()")?;
        let steps: &[(&str, &str)] = &[
            ("Escape", "lapidary.selected === null"),
            ("0", "lapidary.range.join() === lapidary.domain().join()"),
            (
                "+",
                "lapidary.range[1] - lapidary.range[0] < lapidary.domain()[1] - lapidary.domain()[0]",
            ),
            (
                "ArrowRight",
                "lapidary.range[0] > (lapidary.domain()[1] - lapidary.domain()[0]) / 6",
            ),
            ("p", "lapidary.moment === lapidary.model.peak"),
            (
                "+",
                "(({ range, moment, model, axis }) => { const at = axis === 'time' ? model.events.at[moment - 1] : moment; return at >= range[0] && at <= range[1]; })(lapidary)",
            ),
            (",", "lapidary.moment === lapidary.model.peak - 1"),
            ("e", "lapidary.moment === lapidary.model.events.count"),
            ("t", "lapidary.axis === 'events'"),
            ("c", "lapidary.colorBy === 'size'"),
            ("c", "lapidary.colorBy === 'state'"),
            ("c", "lapidary.colorBy === 'tag'"),
            ("y", "lapidary.isFitted"),
            ("?", "document.querySelector('#keys').open"),
            ("Escape", "!document.querySelector('#keys').open"),
            ("/", "document.activeElement.id === 'filter'"),
        ];
        for (key, holds) in steps {
            self.browser.key(key)?;
            self.holds(holds, &format!("the key `{key}` does what it says"))?;
        }
        Ok(())
    }

    /// The filter has the focus. Its matches are always shown as text.
    fn filter(&mut self) -> Result {
        let rows = "Number(document.querySelector('#table').dataset.rows)";
        self.browser.evaluate(&format!("globalThis.all = {rows}"))?;
        self.browser.insert("layer 19")?;
        self.holds(
            &format!("all > 40 && {rows} === 1"),
            "the filter leaves one row",
        )?;
        for (name, shown) in [
            ("script", "</script><script>document.title"),
            ("onerror", "<img src=x onerror="),
            (
                "desrever",
                "\\\\u{1b}[31mred\\\\u{202e}desrever\\\\u{0}\\\\u{a}\\\\u{9}\\\\u{200b}",
            ),
            ("long", "long long long"),
        ] {
            self.browser
                .evaluate("document.querySelector('#filter').select()")?;
            self.browser.insert(name)?;
            let is_shown =
                format!("document.querySelector('#table tbody').textContent.includes(\"{shown}\")");
            self.holds(
                &is_shown,
                &format!("the name with `{name}` is shown as text"),
            )?;
        }
        self.holds(
            "!document.querySelector('#table small b')",
            "no scope became markup",
        )
    }

    fn open(&mut self, name: &str) -> Result<f64> {
        self.browser.look("light", SIZE)?;
        let ready_ms = self.browser.open(&self.folder.join(name))?;
        self.browser.evaluate(
            "globalThis.lapidaryReserved = moment => { const { at, bytes } = lapidary.model.reserved; \
             let place = 0; while (place + 1 < at.length && at[place + 1] <= moment) place++; return bytes[place]; }, \
             globalThis.lapidaryDifference = () => lapidary.docs.map(({ model }) => model.total[model.events.count]).reduce((a, b) => b - a), \
             globalThis.lapidaryGrowth = key => { const row = lapidary.differences().find(row => row.key === key); return row ? row.difference : 0; }, 1",
        )?;
        self.browser.settle()?;
        Ok(ready_ms)
    }

    /// Uses the page's own dialog.
    fn open_file(&mut self, path: &Path) -> Result {
        let document = self.browser.call("DOM.getDocument", r#"{"depth":0}"#)?;
        let root = number(&document, "nodeId").ok_or("the page has no root.")?;
        let params = format!(r##"{{"nodeId":{root},"selector":"#file"}}"##);
        let found = self.browser.call("DOM.querySelector", &params)?;
        let input = number(&found, "nodeId").ok_or("the page opens no files.")?;
        let params = format!(r#"{{"nodeId":{input},"files":["{}"]}}"#, path.display());
        self.browser
            .evaluate("globalThis.before = lapidary.model")?;
        self.browser.call("DOM.setFileInputFiles", &params)?;
        for _ in 0..100 {
            self.browser.settle()?;
            if self.browser.evaluate("lapidary.model !== before")? == "true" {
                return Ok(());
            }
        }
        Err(format!(
            "{} was given to the page, which shows nothing of it.",
            path.display()
        ))
    }

    /// The sums of events and blocks equal the statistics.
    fn agrees(&mut self) -> Result {
        self.holds("lapidary.model.total[lapidary.model.events.count] === lapidary.model.stats.live_bytes.now", "the events end at the live bytes")?;
        self.holds("lapidaryReserved(lapidary.model.events.count) === lapidary.model.stats.reserved_bytes.now", "and at the reserved bytes")
    }

    fn holds(&mut self, expression: &str, what: &str) -> Result {
        match self.browser.evaluate(expression)?.as_str() {
            "true" => Ok(()),
            other => Err(format!("not so: {what} (`{expression}` is {other}).")),
        }
    }

    fn is_quiet(&mut self) -> Result {
        match self.browser.complaints() {
            [] => Ok(()),
            [first, ..] => Err(format!("the page complains, or asks the network: {first}")),
        }
    }

    fn screenshots(&mut self, name: &str) -> Result {
        for scheme in ["dark", "light"] {
            self.browser.look(scheme, SIZE)?;
            let path = self.folder.join(format!("{name}-{scheme}.png"));
            self.browser.screenshot(&path)?;
        }
        Ok(())
    }

    /// The upper left corner of an element.
    fn corner(&mut self, selector: &str) -> Result<[f64; 2]> {
        let of =
            |side| format!("document.querySelector('{selector}').getBoundingClientRect().{side}");
        let mut read = |side| {
            let text = self.browser.evaluate(&of(side))?;
            text.parse::<f64>()
                .map_err(|_| format!("{selector} is nowhere: {text}."))
        };
        Ok([read("left")?, read("top")?])
    }

    /// Medians of 31 repetitions in milliseconds: the time of the script, and the time until the
    /// result is visible, which is at least two frames.
    fn medians(&mut self, repeated: &str) -> Result<String> {
        self.browser.evaluate(&format!(
            "(async () => {{ const script = [], seen = []; for (let i = 0; i < 31; i++) {{ \
             const start = performance.now(); {repeated}; \
             await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)))); \
             seen.push(performance.now() - start); script.push(lapidary.lastPaintMs); }} \
             const median = list => list.sort((a, b) => a - b)[15].toFixed(0); \
             return median(script) + ' ms (seen after ' + median(seen) + ')'; }})()"
        ))
    }
}

/// The first field of this name that is a number.
fn number(json: &str, name: &str) -> Option<u64> {
    let (_, after) = json.split_once(&format!("\"{name}\":"))?;
    let end = after.find(|c: char| !c.is_ascii_digit())?;
    after[..end].parse().ok()
}
