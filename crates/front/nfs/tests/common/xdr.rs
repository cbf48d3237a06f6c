//! Requests and results, encoded and decoded independently of the server.

/// Builds the arguments of a request.
#[derive(Clone, Debug, Default)]
pub struct Message(pub Vec<u8>);

impl Message {
    pub fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn bytes(mut self, data: &[u8]) -> Self {
        self.0.extend(data);
        self
    }

    pub fn opaque(self, data: &[u8]) -> Self {
        let mut message = self.u32(data.len() as u32).bytes(data);
        while !message.0.len().is_multiple_of(4) {
            message.0.push(0);
        }
        message
    }

    pub fn option<T>(self, value: Option<T>, put: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            None => self.u32(0),
            Some(value) => put(self.u32(1), value),
        }
    }
}

/// Reads the results of a request. All of them must be read.
#[derive(Debug)]
pub struct Results {
    bytes: Vec<u8>,
    at: usize,
}

impl Results {
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, at: 0 }
    }

    pub fn take(&mut self, len: usize) -> &[u8] {
        self.at += len;
        &self.bytes[self.at - len..self.at]
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take(8).try_into().unwrap())
    }

    pub fn bool(&mut self) -> bool {
        match self.u32() {
            0 => false,
            1 => true,
            other => panic!("{other} is not a truth value"),
        }
    }

    pub fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.bool().then(|| read(self))
    }

    pub fn opaque(&mut self) -> Vec<u8> {
        let len = self.u32() as usize;
        let data = self.take(len).to_vec();
        let padding = self.take(len.wrapping_neg() % 4);
        assert!(padding.iter().all(|&byte| byte == 0));
        data
    }

    pub fn finish(self) {
        assert_eq!(self.at, self.bytes.len(), "results that the protocol does not have");
    }
}
