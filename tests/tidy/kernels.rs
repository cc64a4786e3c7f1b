//! A kernel has three parts of one name: the shader, its layout and dispatch, and its reference
//! kernel.

/// Shaders that are not a family of kernels, such as shared text, with the reason.
const NOT_A_FAMILY: &[(&str, &str)] = &[("functions", "what kernels of several families call")];

/// Every shader has its layout and its reference kernel. Variants of a kernel may share a folder,
/// `shaders/x/*.wgsl`; then the folder's name counts.
pub(crate) fn check(paths: &[String]) -> Vec<String> {
    let mut shaders: Vec<&str> = paths
        .iter()
        .filter_map(|path| name_under(path, "shaders/", ".wgsl"))
        .collect();
    shaders.dedup();
    let is_family = |shader: &&&str| !NOT_A_FAMILY.iter().any(|(name, _)| name == *shader);
    let mut offences = Vec::new();
    for shader in shaders.iter().filter(is_family) {
        let has_layout = |path: &String| name_under(path, "src/ops/", ".rs") == Some(shader);
        if !paths.iter().any(has_layout) {
            offences.push(format!("shaders/{shader}.wgsl has no src/ops/{shader}.rs"));
        }
        let reference = format!("src/ops/{shader}/reference.rs");
        if !paths.contains(&reference) {
            offences.push(format!("shaders/{shader}.wgsl has no {reference}"));
        }
    }
    offences
}

/// The name of a file in `folder`, or of its subfolder.
fn name_under<'a>(path: &'a str, folder: &str, extension: &str) -> Option<&'a str> {
    path.strip_prefix(folder)?
        .strip_suffix(extension)?
        .split('/')
        .next()
}

#[test]
fn a_kernel_that_misses_a_part_is_found() {
    let found = |paths: &[&str]| {
        check(
            &paths
                .iter()
                .map(|path| (*path).to_owned())
                .collect::<Vec<_>>(),
        )
        .len()
    };
    let whole = [
        "shaders/matmul.wgsl",
        "src/ops/matmul.rs",
        "src/ops/matmul/reference.rs",
    ];
    assert_eq!(found(&[]), 0);
    assert_eq!(found(&whole), 0);
    assert_eq!(found(&whole[..2]), 1);
    assert_eq!(found(&whole[..1]), 2);
    assert_eq!(
        found(&[
            "shaders/a/x.wgsl",
            "shaders/a/y.wgsl",
            "src/ops/a/mod.rs",
            "src/ops/a/reference.rs"
        ]),
        0
    );
    assert_eq!(found(&["src/ops/custom.rs"]), 0);
}
