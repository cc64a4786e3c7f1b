//! Chooses the tile for a product and a device, and the number of workgroups.

use super::form::{End, Form, Order, Spread, Squares, Tile};
use super::pack::{grid as grid_of_packing, packed_len};
use super::problem::Problem;
use crate::ops::rows::count_out;
use lapidary_core::{
    Caps, DType,
    adapter::{AdapterKind, ShaderCompiler},
};

/// Most multiplications for which no other variant is worth its compilation.
const NAIVE_WORK: u64 = 16 * 16 * 16;

/// Least multiplications for which a tile that takes twice as long to compile pays.
const LARGE_WORK: u64 = 512 * 512 * 512;

/// Rows of the tile for packed operands.
const PACKED_ROWS: u8 = 64;

/// Least rows and columns of C for which an operand is read often enough to be packed.
const PACKED_EDGE: u32 = 48;

/// Least multiplications for which operands off the vec4s are packed.
const RAGGED_WORK: u64 = 96 * 96 * 96;

/// Least multiplications for which operands in vec4s are packed, so that a tile reads contiguous
/// memory.
const VEC4S_WORK: u64 = 450 * 450 * 450;

/// Most rows for which a GPU shares out k instead of rows.
const SKINNY_ROWS: u32 = 8;

/// Most columns for which the lanes of a software adapter share out k. Most of a tile in registers
/// would be empty.
const NARROW_COLUMNS: u32 = 64;

/// Most rows for which lanes share out k, for a narrow C and for a wide one.
const SPLIT_ROWS: [u32; 2] = [4, 2];

/// Least steps of k that give each lane enough work, for a narrow C and for a wide one.
const SPLIT_STEPS: [u32; 2] = [64, 256];

/// Least columns for which a row times a matrix gets wider tiles. Such long rows of B lie in
/// different pages, so each access should read more of one.
const FAR_COLUMNS: u32 = 2048;

/// Least steps of k of a part, so that its work hides the extra cost. In the tiles of a GPU each
/// step waits for workgroup memory, so fewer are enough.
const LEAST_PART: u32 = 1024;
const LEAST_PART_OF_TILES: u32 = 256;

/// The shortest sums that are cut.
pub(super) const LEAST_SPLIT_K: usize = 2 * LEAST_PART_OF_TILES as usize;

/// Least multiplications for which a cut saves a software adapter of two cores more than the extra
/// launches cost. At half as many nothing is gained; at twice as many a product takes half the
/// time.
const SPLIT_K_WORK_ON_CPU: u64 = 1 << 23;

/// The same for a GPU: what the gradient of a small layer's weight takes.
const SPLIT_K_WORK: u64 = 1 << 24;

/// Workgroups that keep a GPU busy, and a software adapter on a laptop's cores.
const BUSY_GROUPS: u64 = 128;
const BUSY_GROUPS_ON_CPU: u64 = 8;

/// Most elements of a result whose sums are cut. Larger results have enough tiles to keep a GPU
/// busy.
pub(super) const MOST_SPLIT_LEN: usize = 1 << 20;

/// Least tiles of 128 by 128 that keep a GPU busy.
const MANY_TILES: u64 = 64;

/// Workgroup memory of a tile, and of the sums of the skinny variant.
const TILE_BYTES: u32 = 16 << 10;

/// The element types of a product: A, B, C.
type DTypes = [DType; 3];

/// The tile for a product. `room_bytes` returns the limit of all slabs; it is called if needed.
pub(super) fn choose(
    caps: &Caps,
    dtypes: DTypes,
    problem: &Problem,
    room_bytes: impl FnOnce() -> u64,
) -> Tile {
    if !dtypes[2].is_float() || problem.work() <= NAIVE_WORK {
        return Tile::Naive;
    }
    if caps.kind == AdapterKind::Cpu {
        return on_cpu(caps, problem, room_bytes);
    }
    if !has_workgroup_tiles(caps) {
        return in_registers_of_a_gpu(problem);
    }
    if problem.m <= SKINNY_ROWS {
        return skinny(caps, problem.m);
    }
    // Apple's GPUs do best straight from registers.
    if caps.kind == AdapterKind::Integrated && caps.backend == "metal" {
        return in_registers_of_a_gpu(problem);
    }
    let tiles = u64::from(problem.m.div_ceil(128)) * u64::from(problem.n.div_ceil(128));
    let is_large = tiles * u64::from(problem.matrices) >= MANY_TILES;
    let squares = |large| cooperative(caps, dtypes, problem, large);
    let tile = is_large.then(|| squares(true)).flatten();
    if let Some(tile) = tile.or_else(|| squares(false)) {
        return tile;
    }
    let large = Tile::Workgroup { rows: 8 };
    match is_large && compiles_soon(caps, large) {
        true => large,
        false => Tile::Workgroup { rows: 4 },
    }
}

/// The tile for at most `SKINNY_ROWS` rows. It has all rows, or half of them if the whole compiles
/// slowly; half a tile reads the other matrix twice.
fn skinny(caps: &Caps, m: u32) -> Tile {
    let rows = m.next_power_of_two() as u8;
    let all = Tile::Skinny { rows };
    match compiles_soon(caps, all) {
        true => all,
        false => Tile::Skinny { rows: rows / 2 },
    }
}

/// Whether the device's compiler takes about a second for the tile, and not five. FXC's time grows
/// faster than the text.
pub(super) fn compiles_soon(caps: &Caps, tile: Tile) -> bool {
    let is_long = matches!(
        tile,
        Tile::Workgroup { rows: 8 } | Tile::Skinny { rows: 8 } | Tile::Register { rows: 16.., .. }
    );
    caps.compiler != ShaderCompiler::Fxc || !is_long
}

/// The tile by cooperative matrices, if the device has them and the operands' values fit into
/// halves. It does not pay for a product smaller than a square.
pub(super) fn cooperative(
    caps: &Caps,
    dtypes: DTypes,
    problem: &Problem,
    large: bool,
) -> Option<Tile> {
    let size = caps.cooperative_size?;
    let lanes = lanes(caps)?;
    let are_halves = dtypes[..2]
        .iter()
        .all(|dtype| matches!(dtype, DType::F16 | DType::I8));
    let squares = Squares::new(size as u8, large);
    let threads = squares.subgroups() * u32::from(lanes);
    let fits = threads <= caps.max_invocations
        && squares.workgroup_bytes() <= caps.max_workgroup_bytes
        && problem.m.min(problem.n).min(problem.k) >= size;
    (are_halves && fits).then_some(Tile::Cooperative {
        size: size as u8,
        large,
        lanes,
    })
}

/// Whether the device can run tiles in workgroup memory.
fn has_workgroup_tiles(caps: &Caps) -> bool {
    caps.max_invocations >= 256 && caps.max_workgroup_bytes >= TILE_BYTES
}

/// The tile for a tiny product with an epilogue or scales, which the reference kernel lacks.
pub(super) fn least(caps: &Caps, problem: &Problem) -> Tile {
    let rows = if problem.m == 1 { 1 } else { 4 };
    let lanes = lanes(caps).filter(|_| caps.kind == AdapterKind::Cpu);
    Tile::Register {
        rows,
        vec4s: 1,
        lanes: lanes.unwrap_or(0),
    }
}

/// The tile for a software adapter: no workgroup memory; as many multiplications per load as the
/// registers allow.
fn on_cpu(caps: &Caps, problem: &Problem, room_bytes: impl FnOnce() -> u64) -> Tile {
    if let Some(tile) = split(caps, problem) {
        return tile;
    }
    // A single lane would do all the work.
    if problem.m == 1 && problem.n <= 4 {
        return Tile::Naive;
    }
    let Some(lanes) = lanes(caps) else {
        let (rows, vec4s) = match problem.m {
            1 => (1, 2),
            2..=32 => (4, 2),
            33..=64 => (8, 2),
            _ => (16, 2),
        };
        let tile = |rows| Tile::Register {
            rows,
            vec4s,
            lanes: 0,
        };
        let is_soon = compiles_soon(caps, tile(rows));
        return tile(if is_soon { rows } else { 8 });
    };
    // Rows of a tile, and its speed when all of them are used.
    let speeds = [(4, 12), (8, 21), (16, 36), (32, 46)];
    let cost = |&(rows, speed): &(u32, u32)| {
        u64::from(problem.m.div_ceil(rows)) * u64::from(rows) * 1000 / u64::from(speed)
    };
    let rows = match problem.m {
        1 => 1,
        _ => speeds
            .iter()
            .min_by_key(|tile| cost(tile))
            .map_or(32, |tile| tile.0),
    };
    if pays_to_pack(problem) {
        if let Some(tile) = packed(caps, problem, room_bytes()) {
            return tile;
        }
    }
    let is_wide = problem.n > u32::from(lanes) * 4;
    let is_worth_it = rows < 32 || problem.work() >= LARGE_WORK;
    Tile::Register {
        rows: rows as u8,
        vec4s: if is_wide && is_worth_it { 2 } else { 1 },
        lanes,
    }
}

/// The tile for few rows of C, whose lanes split k.
fn split(caps: &Caps, problem: &Problem) -> Option<Tile> {
    let is_by_rows = problem.b.order() == Order::AlongEdge;
    let width = usize::from(problem.n > NARROW_COLUMNS);
    let is_few = problem.m <= SPLIT_ROWS[width] && problem.k >= SPLIT_STEPS[width];
    // One row of such an A would be loaded element by element.
    let has_rows = problem.m == 1 || problem.a.order() != Order::AlongEdge;
    let lanes = lanes(caps).filter(|_| is_few && has_rows)?;
    let columns = match problem.n {
        ..=4 => 4,
        5..=8 => 8,
        _ if !is_by_rows && problem.m <= 2 => 16,
        _ if !is_by_rows => 8,
        FAR_COLUMNS.. if problem.m == 1 => 64,
        _ => 32,
    };
    Some(Tile::Split {
        rows: problem.m.next_power_of_two() as u8,
        columns,
        lanes,
        vec8s: true,
    })
}

/// The number of parts along k, if a product has too little parallel work. It depends only on the
/// shape and the kind of adapter. So the same call gives the same bits, however many cores a
/// process may use.
pub(super) fn parts_of_k(
    caps: &Caps,
    dtypes: DTypes,
    problem: &Problem,
    room_bytes: impl Fn() -> u64,
) -> Option<u32> {
    let (enough, least_work) = match caps.kind {
        AdapterKind::Cpu => (BUSY_GROUPS_ON_CPU, SPLIT_K_WORK_ON_CPU),
        _ => (BUSY_GROUPS, SPLIT_K_WORK),
    };
    if problem.work() < least_work {
        return None;
    }
    let tile = choose(caps, dtypes, problem, &room_bytes);
    if tile == Tile::Naive {
        return None;
    }
    let form = plain(tile, problem, Spread::Linear);
    let groups: u64 = grid(form, problem).map(u64::from).iter().product();
    // A device that is a quarter busy gains less than the sum of the parts costs.
    if groups * 4 > enough {
        return None;
    }
    let least_part = match tile {
        Tile::Workgroup { .. } | Tile::Cooperative { .. } => LEAST_PART_OF_TILES,
        _ => LEAST_PART,
    };
    let parts = (enough / groups).min(u64::from(problem.k / least_part));
    (parts >= 2 && has_room_for_parts(problem, parts, room_bytes())).then_some(parts as u32)
}

/// Whether operands and parts take at most half of the room.
fn has_room_for_parts(problem: &Problem, parts: u64, room_bytes: u64) -> bool {
    let [m, n, k] = [problem.m, problem.n, problem.k].map(u64::from);
    let len = u64::from(problem.matrices) * (m * k + k * n + parts * m * n);
    len.saturating_mul(4) <= room_bytes / 2
}

/// Whether packing the operands pays: they are read often, and either off the vec4s or too far
/// apart for the caches.
fn pays_to_pack(problem: &Problem) -> bool {
    let is_read_often = problem.m.min(problem.n) >= PACKED_EDGE;
    let is_ragged = !problem.a.is_vec4_aligned() || !problem.b.is_vec4_aligned();
    let least_work = if is_ragged { RAGGED_WORK } else { VEC4S_WORK };
    is_read_often && problem.work() >= least_work
}

/// The tile for packed operands, if it is possible.
fn packed(caps: &Caps, problem: &Problem, room_bytes: u64) -> Option<Tile> {
    let lanes = lanes(caps)?;
    let fits_tiles = u32::from(PACKED_ROWS).is_multiple_of(u32::from(lanes) * 4);
    let fits = |(side, edge)| {
        let bytes = packed_len(problem, side, edge, lanes) * 4;
        let grid = grid_of_packing(problem, side, edge, lanes);
        bytes <= caps.max_binding_bytes && grid.iter().all(|&count| count <= caps.max_groups)
    };
    let sides = [(&problem.a, problem.m), (&problem.b, problem.n)];
    let can_be =
        fits_tiles && sides.into_iter().all(fits) && has_room_to_pack(problem, lanes, room_bytes);
    can_be.then_some(Tile::Packed {
        rows: PACKED_ROWS,
        vec4s: 1,
        lanes,
    })
}

/// Whether packed operands and the result take at most half of the room. A product that fits
/// without copies must not fail because of them.
fn has_room_to_pack(problem: &Problem, lanes: u8, room_bytes: u64) -> bool {
    let a_len = packed_len(problem, &problem.a, problem.m, lanes);
    let b_len = packed_len(problem, &problem.b, problem.n, lanes);
    let c_len = u64::from(problem.rows()).saturating_mul(problem.n.into());
    let len = a_len.saturating_add(b_len).saturating_add(c_len);
    len.saturating_mul(4) <= room_bytes / 2
}

fn in_registers_of_a_gpu(problem: &Problem) -> Tile {
    Tile::Register {
        rows: match problem.m {
            1 => 1,
            2..=32 => 4,
            _ => 8,
        },
        vec4s: 1,
        lanes: 0,
    }
}

/// The lanes of a subgroup, if their number is fixed and small. A tile is four columns a lane wide,
/// so more lanes would waste most of it.
pub(in crate::ops) fn lanes(caps: &Caps) -> Option<u8> {
    let (least, most) = caps.subgroup_lanes?;
    let fits = least == most && least.is_power_of_two() && (4..=32).contains(&least);
    fits.then_some(least as u8)
}

/// The form of a product without an epilogue or scales.
pub(super) fn plain(tile: Tile, problem: &Problem, spread: Spread) -> Form {
    Form {
        tile,
        a: problem.a.order(),
        b: problem.b.order(),
        group_log2: 0,
        spread,
        end: End::default(),
    }
}

/// How the workgroups of a tile are numbered.
pub(super) fn spread_of(caps: &Caps, tile: Tile, problem: &Problem) -> Spread {
    let form = plain(tile, problem, problem.spread());
    let has_grids = matches!(
        tile,
        Tile::Register { .. } | Tile::Packed { .. } | Tile::Split { .. }
    );
    let fits = grid(form, problem)
        .iter()
        .all(|&count| count <= caps.max_groups);
    match has_grids && fits {
        true => form.spread,
        false => Spread::Linear,
    }
}

/// Tiles along the rows, tiles along the columns, and matrices.
fn grid(form: Form, problem: &Problem) -> [u32; 3] {
    let (rows, columns) = form.tile_size();
    let (tiles_m, tiles_n) = (problem.m.div_ceil(rows), problem.n.div_ceil(columns));
    [tiles_m, tiles_n, problem.matrices]
}

/// The workgroups of a launch, in three dimensions.
pub(super) fn groups(caps: &Caps, form: Form, problem: &Problem) -> [u32; 3] {
    let grid = grid(form, problem);
    match (form.tile, form.spread) {
        (Tile::Naive, _) => {
            let elements = u64::from(problem.rows()) * u64::from(problem.n);
            count_out(elements.div_ceil(256), caps)
        }
        (_, Spread::Linear) => count_out(grid.map(u64::from).iter().product(), caps),
        _ => grid,
    }
}
