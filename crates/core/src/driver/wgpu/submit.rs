//! Encodes ops as commands and submits them.

use super::super::failure::invalid;
use super::super::{
    At, BindGroupId, BufferId, DriverError, DriverResult, Op, PipelineId, Submission,
};
use super::link::TimedLink;
use super::opened::Opened;
use super::params::{PAGE_BYTES, Page, uniform_bytes};
use super::tables::Tables;
use super::timing::Timestamps;

/// The commands of one submission during encoding.
struct Encoding<'a> {
    driver: &'a Opened,
    tables: &'a Tables,
    params: &'a [u8],
    encoder: wgpu::CommandEncoder,
    pass: Option<OpenPass>,
    pages: Vec<Page>,
    timing: Option<&'a mut Timestamps>,
    link: Option<&'a TimedLink<'a>>,
}

/// A compute pass and its present state.
struct OpenPass {
    raw: wgpu::ComputePass<'static>,
    pipeline: Option<PipelineId>,
    group: Option<BindGroupId>,
}

impl Opened {
    pub(super) fn submit_ops(&self, ops: &[Op], params: &[u8]) -> DriverResult<Submission> {
        self.guard.check()?;
        let mut pages = Vec::new();
        let mut timing = self.times.lock();
        let link = match *timing {
            Some(_) => None,
            None => self.link.begin(self, ops),
        };
        let encoded = self
            .guard
            .in_passing(|| self.encode(ops, params, &mut pages, timing.as_mut(), link.as_ref()));
        let submission = encoded.and_then(|commands| self.enqueue([commands], &pages));
        pages.into_iter().for_each(|page| self.pages.put_back(page));
        if let Some(timing) = timing.as_mut() {
            timing.end(&self.guard, submission.is_ok());
        }
        if let Some(link) = link {
            link.end(&self.guard, submission.is_ok());
        }
        submission
    }

    /// Submits the app's commands after ours, with their own serial.
    pub(super) fn submit_app(
        &self,
        commands: Vec<wgpu::CommandBuffer>,
    ) -> DriverResult<Submission> {
        self.guard.check()?;
        self.enqueue(commands, &[])
    }

    fn enqueue(
        &self,
        commands: impl IntoIterator<Item = wgpu::CommandBuffer>,
        pages: &[Page],
    ) -> DriverResult<Submission> {
        if !pages.is_empty() {
            // The parameters are written separately, so that no command runs with parameters of
            // others.
            let written = self.guard.guarded(|| {
                for page in pages {
                    self.queue.write_buffer(&page.raw, 0, &page.bytes);
                }
            });
            self.guard.now(written)?;
        }
        let guarded = self.guard.guarded(|| self.queue.submit(commands));
        let index = self.guard.now(guarded)?;
        let Some((submission, notice)) = self.guard.progress.record(index) else {
            return Err(self.guard.gone());
        };
        self.queue.on_submitted_work_done(move || drop(notice));
        Ok(submission)
    }

    fn encode(
        &self,
        ops: &[Op],
        params: &[u8],
        pages: &mut Vec<Page>,
        timing: Option<&mut Timestamps>,
        link: Option<&TimedLink<'_>>,
    ) -> DriverResult<wgpu::CommandBuffer> {
        let (tables, device) = (self.tables(), &self.guard.device);
        let mut encoding = Encoding {
            driver: self,
            tables: &tables,
            params,
            encoder: device.create_command_encoder(&Default::default()),
            pass: None,
            pages: Vec::new(),
            timing,
            link,
        };
        let done = ops.iter().enumerate().try_for_each(|(index, op)| {
            encoding.stamp(index);
            encoding.op(op)
        });
        encoding.pass = None;
        encoding.stamp(ops.len());
        if let Some(timing) = encoding.timing {
            timing.resolve(&mut encoding.encoder);
        }
        pages.append(&mut encoding.pages);
        done.map(|()| encoding.encoder.finish())
    }
}

impl<'a> Encoding<'a> {
    /// Encodes the timestamps around copies of the heap.
    #[inline]
    fn stamp(&mut self, index: usize) {
        if let Some(link) = self.link.filter(|link| link.is_at(index)) {
            self.pass = None;
            link.stamp(index, &mut self.encoder);
        }
    }

    fn op(&mut self, op: &Op) -> DriverResult<()> {
        match *op {
            Op::Copy(At(src, from), At(dst, to), size_bytes) => {
                self.pass = None;
                let (src, dst) = (self.buffer(src)?, self.buffer(dst)?);
                (self.encoder).copy_buffer_to_buffer(src, from, dst, to, size_bytes);
            }
            Op::Clear(At(buffer, offset_bytes), size_bytes) => {
                self.pass = None;
                let buffer = self.buffer(buffer)?;
                self.encoder
                    .clear_buffer(buffer, offset_bytes, Some(size_bytes));
            }
            Op::Write(at, bytes) => self.write(at, bytes)?,
            Op::Dispatch {
                pipeline,
                bind_group,
                params,
                groups,
            } => self.dispatch(pipeline, bind_group, params, groups)?,
        }
        Ok(())
    }

    /// Copies bytes from slots of parameter pages to a buffer.
    fn write(&mut self, At(dst, to): At, (start, len): (u32, u32)) -> DriverResult<()> {
        self.pass = None;
        let dst = self.buffer(dst)?;
        let mut to = to;
        for piece in self
            .params_of((start, len), len)?
            .chunks(PAGE_BYTES as usize)
        {
            let from = self.slot(piece)?;
            let page = self.pages.last().expect("the slot lies in it");
            let size_bytes = piece.len() as u64;
            (self.encoder).copy_buffer_to_buffer(&page.raw, from.into(), dst, to, size_bytes);
            to += size_bytes;
        }
        Ok(())
    }

    fn dispatch(
        &mut self,
        pipeline: PipelineId,
        group: BindGroupId,
        params: (u32, u32),
        groups: [u32; 3],
    ) -> DriverResult<()> {
        let tables = self.tables;
        let Some(pipeline_entry) = tables.pipelines.get(pipeline.0) else {
            return invalid("a dispatch of an unknown pipeline");
        };
        let Some(group_entry) = tables.groups.get(group.0) else {
            return invalid("a dispatch with an unknown bind group");
        };
        let bytes = self.params_of(params, pipeline_entry.params_bytes)?;
        let caps = &self.driver.caps;
        let uniform = uniform_bytes(caps, pipeline_entry.params_bytes).is_some();
        let offset = uniform.then(|| self.slot(bytes)).transpose()?;
        let timing = self.timing.as_mut();
        if timing.is_some() {
            self.pass = None;
        }
        let stamps = timing.and_then(|timing| timing.next());
        let encoder = &mut self.encoder;
        let pass = self.pass.get_or_insert_with(|| OpenPass {
            raw: encoder
                .begin_compute_pass(&wgpu::ComputePassDescriptor {
                    label: None,
                    timestamp_writes: stamps,
                })
                .forget_lifetime(),
            pipeline: None,
            group: None,
        });
        if pass.pipeline != Some(pipeline) {
            pass.raw.set_pipeline(&pipeline_entry.raw);
            pass.pipeline = Some(pipeline);
        }
        // With a uniform slot the offset changes with every dispatch.
        if pass.group != Some(group) || uniform {
            let page = self.pages.last().filter(|_| uniform);
            let raw = self.driver.group_for(tables, group_entry, page)?;
            pass.raw.set_bind_group(0, &raw, offset.as_slice());
            pass.group = Some(group);
        }
        if !uniform && !bytes.is_empty() {
            pass.raw.set_immediates(0, bytes);
        }
        let [x, y, z] = groups;
        pass.raw.dispatch_workgroups(x, y, z);
        Ok(())
    }

    fn params_of(&self, (start, len): (u32, u32), expected: u32) -> DriverResult<&'a [u8]> {
        let range = start as usize..(start as usize).saturating_add(len as usize);
        match self.params.get(range) {
            Some(bytes) if len == expected => Ok(bytes),
            _ => invalid(format!(
                "{len} bytes of parameters at {start} of {}, for a kernel that takes {expected}",
                self.params.len()
            )),
        }
    }

    /// Writes parameters into a slot of the last page, or of a new one.
    fn slot(&mut self, bytes: &[u8]) -> DriverResult<u32> {
        let pages = &self.driver.pages;
        let page = self.pages.last_mut();
        if let Some(offset) = page.and_then(|page| pages.write(page, bytes)) {
            return Ok(offset);
        }
        let mut page = pages.take(&self.driver.guard)?;
        let offset = pages.write(&mut page, bytes);
        self.pages.push(page);
        offset.ok_or_else(|| DriverError::Invalid("parameters larger than a page".to_owned()))
    }

    fn buffer(&self, buffer: BufferId) -> DriverResult<&'a wgpu::Buffer> {
        match self.tables.buffers.get(buffer.0) {
            Some(entry) => Ok(&entry.raw),
            None => invalid("a copy or clear of an unknown buffer"),
        }
    }
}
