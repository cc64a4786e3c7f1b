//! Tests of whole shaders.

use super::*;
use lapidary_testing::translate;

const TEXT: &str = "struct Params { n: u32 }
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let i = id.x * 4u;
  if (i >= p.n) { return; }
  y_put4(i, y_get4(i) + x_get4(i) + vec4(x_get(i)));
}";

fn check(variant: Variant, layout: Layout, window_bytes: u64, immediates: bool) -> String {
    let target = Target {
        window_bytes,
        immediates,
        enables: false,
        wide_words: false,
    };
    let operands = [Operand::read("x"), Operand::update("y")];
    let wide = Target {
        wide_words: true,
        ..target
    };
    translate(
        "accessors",
        &shader(TEXT, &operands, &variant, &layout, &wide),
    );
    let whole = shader(TEXT, &operands, &variant, &layout, &target);
    translate("accessors", &whole);
    whole
}

#[test]
fn every_type_form_part_and_window_count_gives_a_valid_shader() {
    for dtype in DType::ALL {
        for vec4s in 0..4 {
            for windows in [1, 3] {
                for (parts, writable) in [([0, 1], 0b10), ([0, 1], 0b11), ([0, 0], 0b1)] {
                    let mut layout = Layout {
                        parts: [0; MAX_OPERANDS],
                        windows: [windows; MAX_OPERANDS],
                        writable,
                    };
                    layout.parts[..2].copy_from_slice(&parts);
                    let variant = Variant {
                        code: 0,
                        dtypes: [dtype; MAX_OPERANDS],
                        vec4s,
                    };
                    check(variant, layout, 64 << 10, windows == 1);
                }
            }
        }
    }
}

#[test]
fn vec8s_are_one_load_where_all_of_a_part_are_read_so() {
    let operands = [Operand::read("x"), Operand::update("y")];
    let text = TEXT.replace("x_get4(i)", "x_get8(i)[1]");
    let check = |vec4s, windows, same_part: bool| {
        let mut layout = Layout {
            parts: [0; MAX_OPERANDS],
            windows: [windows; MAX_OPERANDS],
            writable: 1 << u8::from(!same_part),
        };
        layout.parts[1] = u8::from(!same_part);
        let variant = Variant {
            code: 0,
            dtypes: [DType::F32; MAX_OPERANDS],
            vec4s,
        };
        let target = Target {
            window_bytes: 64 << 10,
            immediates: true,
            enables: false,
            wide_words: true,
        };
        let whole = shader(&text, &operands, &variant, &layout, &target);
        translate("vec8s", &whole);
        whole.contains("array<vec4<u64>>")
    };
    assert!(check(0b11, 1, false));
    assert!(check(0b01, 1, false));
    assert!(!check(0b10, 1, false));
    assert!(!check(0b11, 3, false));
    assert!(!check(0b11, 1, true));
}

#[test]
fn vec8s_are_one_store_where_nothing_else_is_done_with_a_part() {
    let operands = [Operand::read("x"), Operand::write("y")];
    let pair = TEXT
        .replace("y_get4(i) + x_get4(i)", "x_get8(i)[1]")
        .replace("y_put4(i, ", "let v = (")
        .replace("  let v", "  y_put8(i, x_get8(i)); let v");
    let bindings = |text: &str, same_part: bool| {
        let mut layout = Layout {
            parts: [0; MAX_OPERANDS],
            windows: [1; MAX_OPERANDS],
            writable: 0b11,
        };
        layout.parts[1] = u8::from(!same_part);
        let variant = Variant {
            code: 0,
            dtypes: [DType::F32; MAX_OPERANDS],
            vec4s: 0b11,
        };
        let target = Target {
            window_bytes: 64 << 10,
            immediates: true,
            enables: false,
            wide_words: true,
        };
        let whole = shader(text, &operands, &variant, &layout, &target);
        translate("vec8s", &whole);
        whole.matches("array<vec4<u64>>").count()
    };
    assert_eq!(bindings(&pair, false), 2);
    assert_eq!(bindings(&pair, true), 1);
    let and_a_vec4 = pair.replace("let v", "y_put4(i, vec4(1.0)); let v");
    assert_eq!(bindings(&and_a_vec4, false), 1);
    assert_eq!(bindings(&and_a_vec4, true), 0);
}

#[test]
fn eight_bytes_and_two_words_are_one_load_of_64_bits() {
    let operands = [Operand::read("x"), Operand::update("y")];
    let loads = |dtype, vec4s, windows, value: &str| {
        let mut layout = Layout {
            parts: [0; MAX_OPERANDS],
            windows: [windows; MAX_OPERANDS],
            writable: 0b10,
        };
        layout.parts[1] = 1;
        let mut dtypes = [DType::F32; MAX_OPERANDS];
        dtypes[0] = dtype;
        let variant = Variant {
            code: 0,
            dtypes,
            vec4s,
        };
        let target = Target {
            window_bytes: 64 << 10,
            immediates: true,
            enables: false,
            wide_words: true,
        };
        let text = TEXT.replace("x_get4(i) + vec4(x_get(i))", value);
        let whole = shader(&text, &operands, &variant, &layout, &target);
        translate("pairs", &whole);
        whole.matches("array<u64>").count()
    };
    let bytes = "x_get8(i)[1] + vec4<f32>(x_get4(i)) + f32(x_get(i))";
    let words = "vec4<f32>(vec4<u32>(x_get2(i), x_get2(i + 2u)))";
    for windows in [1, 3] {
        assert_eq!(loads(DType::I8, 0b11, windows, bytes), usize::from(windows));
        assert_eq!(
            loads(DType::U32, 0b10, windows, words),
            usize::from(windows)
        );
        assert_eq!(loads(DType::I8, 0b10, windows, bytes), 0);
    }
}

#[test]
fn operands_of_one_part_share_one_binding() {
    let layout = Layout {
        parts: [0; MAX_OPERANDS],
        windows: [1; MAX_OPERANDS],
        writable: 1,
    };
    let variant = Variant {
        code: 0,
        dtypes: [DType::F32; MAX_OPERANDS],
        vec4s: 0b11,
    };
    let whole = check(variant, layout, 1 << 20, true);
    assert_eq!(whole.matches("@binding").count(), 1);
    assert_eq!(layout.bindings(2), [BindingAccess::ReadWrite]);
}

#[test]
fn only_a_shader_that_uses_subgroups_enables_them_and_in_its_first_line() {
    let operands = [Operand::read("x"), Operand::update("y")];
    let layout = Layout {
        parts: [0; MAX_OPERANDS],
        windows: [1; MAX_OPERANDS],
        writable: 1,
    };
    let variant = Variant {
        code: 0,
        dtypes: [DType::F32; MAX_OPERANDS],
        vec4s: 0,
    };
    let first_line = |text: &str, enables| {
        let target = Target {
            window_bytes: 1 << 20,
            immediates: true,
            enables,
            wide_words: false,
        };
        let whole = shader(text, &operands, &variant, &layout, &target);
        whole.lines().next() == Some("enable subgroups;")
    };
    let subgroups = TEXT.replace("vec4(x_get(i))", "vec4(subgroupAdd(x_get(i)))");
    assert!(first_line(&subgroups, true));
    assert!(!first_line(&subgroups, false));
    assert!(!first_line(TEXT, true));
}
