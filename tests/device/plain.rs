//! Properties of a device on which the library depends, tested with wgpu alone. A failure here is
//! not ours.

use std::collections::VecDeque;

use lapidary::wgpu;

use super::app::App;

/// Contents that earlier devices leave in their memory.
const LEFT: u8 = 0xa5;
/// Small enough for the process to keep it after a release.
const LEFT_BYTES: usize = 1 << 20;
const READ_BYTES: usize = 256 << 10;

/// WebGPU promises zeros. On DX12 wgpu keeps the promise by copying from a buffer that the system
/// should have cleared.
#[test]
fn a_buffer_that_nobody_wrote_reads_as_zeros() {
    // The released memory is among that of others.
    let mut others = VecDeque::new();
    for round in 0..12 {
        let app = App::open_sparing();
        let read = app.read(&app.buffer(READ_BYTES as u64));
        let first = read.iter().position(|&byte| byte != 0);
        assert_eq!(first, None, "of device {round}");
        let leave = |_| {
            let buffer = app.buffer(LEFT_BYTES as u64);
            app.queue.write_buffer(&buffer, 0, &vec![LEFT; LEFT_BYTES]);
            buffer
        };
        let left: Vec<_> = (0..8).map(leave).collect();
        app.queue.submit([]);
        app.wait();
        others.push_back((app, left));
        if others.len() == 4 {
            others.pop_front();
            others.swap_remove_front(1);
        }
    }
}

impl App {
    /// The bytes of a buffer.
    fn read(&self, buffer: &wgpu::Buffer) -> Vec<u8> {
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let copy = self.buffer_for(buffer.size(), usage);
        let mut encoder = self.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(buffer, 0, &copy, 0, buffer.size());
        self.queue.submit([encoder.finish()]);
        copy.map_async(wgpu::MapMode::Read, .., |mapped| {
            mapped.expect("it can be mapped");
        });
        self.wait();
        let bytes = copy.get_mapped_range(..).expect("mapped").to_vec();
        copy.unmap();
        bytes
    }

    fn wait(&self) {
        let wait = wgpu::PollType::wait_indefinitely();
        self.device.poll(wait).expect("the device is alive");
    }
}
