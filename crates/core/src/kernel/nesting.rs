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

/// Most operators and brackets from the root of a declaration's tree to a leaf: as many brackets as
/// naga takes. It writes a pair of brackets for most operators, and the compilers of Metal and DX12
/// refuse more than 256. Unoptimized naga takes up to 65 KiB of stack for each, so this depth fits
/// [`with_deep_stack`](crate::driver::with_deep_stack).
const MOST_DEPTH: usize = 200;

/// Most declarations of a text.
const MOST_DECLARATIONS: usize = 1000;

/// Since an open bracket: bounds on the depth of the trees after it. Commas, semicolons and blocks
/// end a part.
///
/// A term stands between two binary operators. For any precedence, a part with `n` operators
/// between terms is at most `n` deep above its deepest term. A term is at most as deep as its
/// marks, above its deepest bracket.
#[derive(Clone, Copy, Default)]
struct Depths {
    /// Operators between terms of the current part.
    operators: usize,
    /// Marks of the current term: operators that bind tighter, and brackets.
    marks: usize,
    /// Each `<` of the term that may open a template, without its `>`. Commas and operators in a
    /// template end no term: what follows is below the marks before the template.
    angles: usize,
    /// The deepest bracket of the current term.
    bracket: usize,
    /// The deepest term of the current part so far.
    term: usize,
    /// The deepest part so far.
    part: usize,
}

impl Depths {
    fn depth(&self) -> usize {
        let term = self.term.max(self.marks + self.bracket);
        self.part.max(self.operators + term)
    }

    fn end_part(&mut self) {
        *self = Depths {
            part: self.depth(),
            ..Depths::default()
        };
    }

    fn end_term(&mut self) {
        self.term = self.term.max(self.marks + self.bracket);
        (self.marks, self.bracket) = (0, 0);
        self.operators += 1;
    }
}

/// Refuses a text that is too deep or has too many declarations. The error gives the place and the
/// reason.
pub(super) fn check_depth(text: &str, tokens: &[Token]) -> Result<(), (Range<usize>, String)> {
    let (mut open, mut here): (Vec<Depths>, _) = (vec![], Depths::default());
    // Depth of all open brackets, from the outermost to this one.
    let mut above = 0;
    let mut declarations = 0;
    for (index, token) in tokens.iter().enumerate() {
        let TokenKind::Mark(mark) = token.kind else {
            continue;
        };
        match mark {
            b'(' | b'[' | b'{' => {
                here.marks += 1;
                above += here.operators + here.marks;
                open.push(std::mem::take(&mut here));
            }
            b')' | b']' | b'}' => {
                let depth = here.depth();
                here = open.pop().unwrap_or_default();
                here.bracket = here.bracket.max(depth);
                above = above.saturating_sub(here.operators + here.marks);
                // A chain of `else if` is a tree as deep as the chain is long.
                let next = tokens.get(index + 1);
                let goes_on = next.is_some_and(|next| next.is_word(text, "else"));
                if mark == b'}' && !goes_on {
                    here.end_part();
                    declarations += usize::from(open.is_empty());
                }
            }
            b',' if here.angles > 0 => {}
            b',' => here.end_part(),
            b';' => {
                here.end_part();
                declarations += usize::from(open.is_empty());
            }
            _ => {
                let before = index.checked_sub(1).map(|before| tokens[before]);
                let is_after_word = before.is_some_and(|before| before.kind == TokenKind::Word);
                let is_after_term = is_after_word
                    || before.is_some_and(|before| before.is(b')') || before.is(b']'));
                let next = text.as_bytes().get(token.range().end);
                let was_in_template = here.angles > 0;
                match mark {
                    b'<' if is_after_word && !matches!(next, Some(b'<' | b'=')) => here.angles += 1,
                    b'>' => here.angles = here.angles.saturating_sub(1),
                    _ => {}
                }
                let is_binary = is_after_term && b"+-<>=!&|^".contains(&mark);
                match is_binary && !was_in_template && here.angles == 0 {
                    true => here.end_term(),
                    false => here.marks += 1,
                }
            }
        }
        if above + here.depth() > MOST_DEPTH {
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
        let dot = "a[i].x * -b[2 * i] + ".repeat(150);
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
        let signs = "- ".repeat(80);
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
