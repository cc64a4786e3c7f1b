//! Texts of all kinds of variants.

use super::form::Form;
use super::{APPEND, ATTENTION, Geometry, MERGE};
use crate::ops::check::{valid, valid_beyond_fxc};
use lapidary_core::DType;

#[test]
fn every_form_gives_valid_shaders() {
    for dtype in [DType::F32, DType::F16, DType::I8] {
        for (head_size, page_tokens) in [(64, 16), (80, 32), (128, 16), (256, 16), (4, 16)] {
            for (log_heads, log_rows) in [(0, 0), (0, 3), (2, 0), (2, 1), (3, 0)] {
                for is_capped in [false, true] {
                    let form = Form {
                        geometry: Geometry {
                            head_size,
                            page_tokens,
                            dtype,
                        },
                        log_heads,
                        log_rows,
                        is_capped,
                        lanes: 0,
                    };
                    let (code, q) = (form.pack(), DType::F16);
                    valid(
                        &ATTENTION,
                        code,
                        &[q, DType::F32, DType::U32, DType::U32],
                        0b1011,
                    );
                    let of_lanes = Form { lanes: 8, ..form }.pack();
                    let dtypes = [q, DType::F32, DType::U32, DType::U32];
                    valid_beyond_fxc(&ATTENTION, of_lanes, &dtypes, 0b1011);
                    if (log_heads, is_capped) == (0, false) {
                        valid(&APPEND, code, &[q, q, DType::U32, DType::U32], 0b1011);
                        valid(&MERGE, code, &[DType::F32, DType::U32, q], 0b101);
                    }
                }
            }
        }
    }
}
