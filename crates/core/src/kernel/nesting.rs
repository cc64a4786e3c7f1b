//! How deep the operators of a user's WGSL are, and where its declarations are.
//!
//! naga parses with a limit on brackets and blocks: 200 and 127, one within the other. It has none
//! on operators that follow each other: `- - - x`, `x + x + x`, `x.xy.xy.xy`, `x[0][0][0]`, and
//! `else if` after `else if`. It parses them by a loop, and then lowers, checks and writes the tree
//! by recursion. So 20,000 signs overflow a stack of 32 MiB, and the process ends. Declarations are
//! sorted by recursion along their uses: 20,000 overflow 2 MiB, and a browser has less. This module
//! refuses such texts. It counts in one pass without recursion.
//!
//! The tokens also give the place and the name of a declaration, which naga does not keep.

use std::ops::Range;

use super::tokens::{Token, TokenKind};

/// Most operators and brackets from the root of a declaration's tree to a leaf. Unoptimized naga
/// takes up to 65 KiB for a bracket and 48 KiB for an `else if`, but 33 KiB for an operator, and
/// refuses more than 200 brackets. So this depth fits
/// [`with_deep_stack`](crate::driver::with_deep_stack).
const MOST_DEPTH: usize = 500;

/// Most declarations of a text.
const MOST_DECLARATIONS: usize = 1000;

/// Marks since an open bracket. Commas, semicolons and blocks end a part, and a tree is at most as
/// deep as its part has marks.
#[derive(Clone, Copy, Default)]
struct Marks {
    /// Marks of the current part, with those in its closed brackets.
    here: usize,
    /// The most marks of a part so far.
    most: usize,
    /// Each `<` of the part that may open a template, without its `>`. A comma in a template ends
    /// no part: what follows is below the marks before the template.
    angles: usize,
}

impl Marks {
    fn end_part(&mut self) {
        self.most = self.most.max(self.here);
        (self.here, self.angles) = (0, 0);
    }
}

/// Refuses a text that is too deep or has too many declarations. The error gives the place and the
/// reason.
pub(super) fn check_depth(text: &str, tokens: &[Token]) -> Result<(), (Range<usize>, String)> {
    let (mut open, mut marks): (Vec<Marks>, _) = (vec![], Marks::default());
    // Marks before all open brackets.
    let mut above = 0;
    let mut declarations = 0;
    for (index, token) in tokens.iter().enumerate() {
        let TokenKind::Mark(mark) = token.kind else {
            continue;
        };
        match mark {
            b'(' | b'[' | b'{' => {
                marks.here += 1;
                above += marks.here;
                open.push(std::mem::take(&mut marks));
            }
            b')' | b']' | b'}' => {
                marks.end_part();
                let inner = marks.most;
                marks = open.pop().unwrap_or_default();
                above = above.saturating_sub(marks.here);
                let next = tokens.get(index + 1);
                match mark == b'}' {
                    false => marks.here += inner,
                    // A chain of `else if` is a tree as deep as the chain is long.
                    true => {
                        marks.most = marks.most.max(marks.here + inner);
                        if !next.is_some_and(|next| next.is_word(text, "else")) {
                            marks.end_part();
                            declarations += usize::from(open.is_empty());
                        }
                    }
                }
            }
            b',' if marks.angles > 0 => {}
            b',' => marks.end_part(),
            b';' => {
                marks.end_part();
                declarations += usize::from(open.is_empty());
            }
            _ => {
                marks.here += 1;
                let before = index.checked_sub(1).map(|before| tokens[before].kind);
                let next = text.as_bytes().get(token.range().end);
                match mark {
                    b'<' if before == Some(TokenKind::Word) => {
                        marks.angles += usize::from(!matches!(next, Some(b'<' | b'=')));
                    }
                    b'>' => marks.angles = marks.angles.saturating_sub(1),
                    _ => {}
                }
            }
        }
        if above + marks.here.max(marks.most) > MOST_DEPTH {
            let reason = format!(
                "operators and brackets are more than {MOST_DEPTH} deep here: split the \
                 statement, or use a loop"
            );
            return Err((token.range(), reason));
        }
        if declarations > MOST_DECLARATIONS {
            let reason = format!("a kernel has at most {MOST_DECLARATIONS} declarations");
            return Err((token.range(), reason));
        }
    }
    Ok(())
}

/// The declaration of a module-scope variable in the text.
#[derive(Clone, Debug)]
pub(super) struct Declaration {
    /// Attributes, `var` and template list, up to the name. A layout replaces this range.
    pub(super) head: Range<usize>,
    /// The name.
    pub(super) name: Range<usize>,
    /// The type as written.
    pub(super) ty: Range<usize>,
}

/// The declaration whose `var` is the first token at `at` or after it.
pub(super) fn declaration(tokens: &[Token], at: usize) -> Option<Declaration> {
    let var = tokens.partition_point(|token| token.range().start < at);
    let mut name = var + 1;
    if tokens.get(name)?.is(b'<') {
        name += tokens[name..].iter().position(|token| token.is(b'>'))? + 1;
    }
    let end = name + tokens[name..].iter().position(|token| token.is(b';'))?;
    let ty = match (tokens.get(name + 2..end)?.first(), tokens.get(end - 1)) {
        (Some(first), Some(last)) => first.range().start..last.range().end,
        _ => return None,
    };
    Some(Declaration {
        head: tokens[before_attributes(tokens, var)].range().start..tokens[name].range().start,
        name: tokens[name].range(),
        ty,
    })
}

/// Steps back over `@name` and `@name(…)`.
fn before_attributes(tokens: &[Token], mut first: usize) -> usize {
    loop {
        let mut at = first;
        if at > 0 && tokens[at - 1].is(b')') {
            let mut open = 0_usize;
            while at > 0 {
                at -= 1;
                open += usize::from(tokens[at].is(b')'));
                open -= usize::from(tokens[at].is(b'('));
                if open == 0 {
                    break;
                }
            }
        }
        if at < 2 || tokens[at - 1].kind != TokenKind::Word || !tokens[at - 2].is(b'@') {
            return first;
        }
        first = at - 2;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tokens::tokens;
    use super::*;

    /// The test runs itself again, for each text in a process of its own. If this test fails, naga
    /// has learned to refuse such texts, and [`check_depth`] may go.
    #[cfg(unix)]
    #[test]
    fn naga_alone_overflows_its_stack() {
        const CHILD: &str = "LAPIDARY_PARSES_ALONE";
        let chain = |link: &str| format!("const a = {}1;", link.repeat(200_000));
        let texts = [
            chain("- "),
            chain("1+"),
            format!("const a = b{};", ".x".repeat(200_000)),
            format!("const a = b{};", "[0]".repeat(200_000)),
        ];
        if let Ok(index) = std::env::var(CHILD) {
            let text = &texts[index.parse::<usize>().unwrap()];
            crate::driver::with_deep_stack(|| drop(naga::front::wgsl::parse_str(text)));
            return;
        }
        for (index, text) in texts.iter().enumerate() {
            assert!(text.len() <= super::super::tokens::MOST_TEXT_BYTES);
            assert!(check_depth(text, &tokens(text)).is_err());
            let ended = std::process::Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "kernel::nesting::tests::naga_alone_overflows_its_stack",
                ])
                .env(CHILD, index.to_string())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&ended.stderr);
            assert!(said.contains("overflowed its stack"), "{index}: {said}");
        }
    }

    #[test]
    fn declarations_are_found_between_comments_and_attributes() {
        let text = "var<private> /* ; */ a: u32;\n\
            @group((0)) // var<storage> no\n @binding(1 + (2)) var /* nested /* x */ */ < storage ,\n\
            read > b : array< vec4<f32>, 3 > ;";
        let tokens = tokens(text);
        let at = text.find("var /*").unwrap();
        let found = declaration(&tokens, at).unwrap();
        assert_eq!(&text[found.name], "b");
        assert_eq!(&text[found.ty], "array< vec4<f32>, 3 >");
        assert!(text[found.head.clone()].starts_with("@group((0))"));
        assert!(text[found.head].ends_with("read > "));
        let first = declaration(&tokens, 0).unwrap();
        assert_eq!(&text[first.head], "var<private> /* ; */ ");
    }

    #[test]
    fn ordinary_texts_are_not_deep_and_bombs_are() {
        fn check(text: &str, is_fine: bool) {
            let found = check_depth(text, &tokens(text));
            assert_eq!(found.is_ok(), is_fine, "{:.40}… {found:?}", text);
        }
        let many = |what: &str| what.repeat(20_000);
        check(
            "fn f() { let a = 1.5e-3 + 0x1p-3 * (b - c[i].x) << 2u; }",
            true,
        );
        check(
            &format!("const a = array<f32, 9>({});", many("-1.5e-3, ")),
            true,
        );
        check(&format!("fn f() {{ {} }}", many("x += a[i] * 2.0;")), true);
        check(
            &format!("fn f() {{ {} }}", many("if a { b(); } else { c(); }")),
            true,
        );
        check(&format!("/*{}*/ fn f() {{}}", many("((((")), true);
        let dot = "a[i].x * -b[2 * i] + ".repeat(70);
        check(&format!("const a = {dot} 1;"), true);
        check(&many("("), false);
        check(&many("{"), false);
        check(&many(")"), true);
        check(&format!("const a = {}1;", many("-")), false);
        check(&format!("const a = 1{};", many("* 2")), false);
        check(
            &format!("const a = {}b{};", many("f(1 + "), many(")")),
            false,
        );
        check(&format!("const a = {}", many("f(a * b, -")), false);
        check(&format!("const a = 1{};", many("+1")), false);
        check(&format!("const a = b{};", many(".x")), false);
        check(&format!("const a = b{};", many("[0]")), false);
        check(&format!("const a: {}", many("vec2<1, ")), false);
        // Neither the commas of templates nor their levels hide operators.
        let signs = "- ".repeat(200);
        for level in ["array<i32, ", "array<i32, 1 + ", "array<i32, 1>(", "f("] {
            let level = format!("{signs}{level}");
            check(&format!("const a = {}", level.repeat(2)), true);
            check(&format!("const a = {}", level.repeat(3)), false);
        }
        check(&format!("const a = f({}", many("1u << 2u, a <= b, ")), true);
        check(
            &format!("fn f() {{ if a {{}} {} }}", many("else if a {} ")),
            false,
        );
        check(&many("const a = 1;"), false);
        check(&many("fn a() {}"), false);
    }
}
