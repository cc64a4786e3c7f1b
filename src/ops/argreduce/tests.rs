//! The kernels' texts.

use super::*;
use crate::ops::check::valid;

#[test]
fn every_form_type_and_rank_gives_a_valid_shader() {
    for dtype in DType::ALL {
        for ranks in [0x11, 0x12, 0x14] {
            for least in [0, LEAST] {
                for form in [Form::Along, Form::Across, Form::AcrossVec4s, Form::Tree] {
                    let code = ranks | least | (form as u64) << 12;
                    valid(&ARGREDUCE, code, &[dtype, DType::U32], 0b11);
                }
                let dtypes = [dtype, DType::U32, DType::U32];
                valid(&ARGREDUCE_PICK, ranks | least, &dtypes, 0b100);
            }
        }
    }
}
