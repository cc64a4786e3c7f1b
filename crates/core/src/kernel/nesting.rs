//! How deeply a user's WGSL nests, and where its declarations are.
//!
//! naga parses and checks by recursion, in frames of many kilobytes. So does wgpu when it compiles
//! the text again. This module refuses a text that would overflow their stack. It counts in one
//! pass without recursion. The tokens also give the place and the name of a declaration, which naga
//! does not keep.

use std::ops::Range;

use super::tokens::{Token, TokenKind};

/// Greatest depth of the tree of one declaration: operators and brackets from its root to a leaf.
/// Unoptimized naga takes up to 60 KiB per level, so this depth fits
/// [`with_deep_stack`](crate::driver::with_deep_stack).
const MOST_DEPTH: usize = 160;

/// Most declarations of a text: naga sorts them by recursion along their uses.
const MOST_DECLARATIONS: usize = 1000;

/// An open bracket: bounds on the depth of the trees after it.
///
/// A term stands between two binary operators. For any precedence, a part with `n` operators
/// between terms is at most `n` deep above its deepest term. A term is at most as deep as its
/// marks, above its deepest bracket.
#[derive(Clone, Copy, Default)]
struct Depths {
    /// Operators between terms of the current part, and each `<` that may open a template.
    operators: usize,
    /// Each `<` without its `>` in the current part: a comma does not end a template.
    angles: usize,
    /// Marks of the current term: operators that bind tighter, and brackets.
    marks: usize,
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

    fn end_term(&mut self) {
        self.term = self.term.max(self.marks + self.bracket);
        (self.marks, self.bracket) = (0, 0);
        self.operators += 1;
    }

    /// A comma, a semicolon or a block ends a part.
    fn end_part(&mut self, keeps_angles: bool) {
        let angles = if keeps_angles { self.angles } else { 0 };
        *self = Depths {
            operators: angles,
            angles,
            part: self.depth(),
            ..Depths::default()
        };
    }

    /// Counts an operator. `is_binary`: the token before it ends a term.
    fn operator(&mut self, mark: u8, is_binary: bool) {
        match mark {
            b'<' => self.angles += 1,
            b'>' => self.angles = self.angles.saturating_sub(1),
            _ => {}
        }
        match is_binary && b"+-<>=!&|^".contains(&mark) {
            true => self.end_term(),
            false => self.marks += 1,
        }
    }
}

/// Refuses a text that is too deep or has too many declarations. The error gives the place and the
/// reason.
pub(super) fn check_depth(text: &str, tokens: &[Token]) -> Result<(), (Range<usize>, String)> {
    let mut open: Vec<Depths> = vec![];
    let mut here = Depths::default();
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
                let goes_on = tokens.get(index + 1);
                let goes_on = goes_on.is_some_and(|next| next.is_word(text, "else"));
                if mark == b'}' && !goes_on {
                    here.end_part(false);
                    declarations += usize::from(open.is_empty());
                }
            }
            b',' => here.end_part(true),
            b';' => {
                here.end_part(false);
                declarations += usize::from(open.is_empty());
            }
            _ => {
                let before = index.checked_sub(1).map(|before| tokens[before]);
                let is_binary = before.is_some_and(|before| {
                    before.kind == TokenKind::Word || before.is(b')') || before.is(b']')
                });
                here.operator(mark, is_binary);
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
        let dot = "a[i].x * -b[2 * i] + ".repeat(100);
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
        check(
            &format!("fn f() {{ if a {{}} {} }}", many("else if a {} ")),
            false,
        );
        check(&many("const a = 1;"), false);
        check(&many("fn a() {}"), false);
    }
}
