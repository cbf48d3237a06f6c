// Creates, fills, reads and checks an image from Go through cgo: go run . NEW_IMAGE
//
// CGO_CFLAGS and CGO_LDFLAGS give the locations of header and library; for an installed library, pkg-config does.
package main

/*
#include <stdlib.h>
#include <diskwright.h>
*/
import "C"

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// Error is an error of the library.
type Error struct {
	Code    int
	Errno   syscall.Errno
	Message string
}

func (e *Error) Error() string { return e.Message }

// Is supports errors.Is with fs.ErrNotExist and similar errors.
func (e *Error) Is(target error) bool { return errors.Is(e.Errno, target) }

// failed converts the result of a call to a Go error, and frees the C error.
func failed(code C.int, err *C.dw_error) error {
	if code == C.DW_OK {
		return nil
	}
	defer C.dw_error_free(err)
	return &Error{int(code), syscall.Errno(C.dw_error_errno(err)), C.GoString(C.dw_error_message(err))}
}

// Image is an open image. Goroutines may share it.
type Image struct{ handle *C.dw_image }

// Create creates a file with an empty ext4 file system.
func Create(path string, size uint64) (*Image, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	options := C.dw_format_options{format: C.DW_EXT4}
	options.struct_size = C.size_t(unsafe.Sizeof(options))
	image, err := &Image{}, (*C.dw_error)(nil)
	code := C.dw_create(name, C.uint64_t(size), &options, &image.handle, &err)
	return image, failed(code, err)
}

// Close makes all changes durable and frees the image.
func (image *Image) Close() error {
	var err *C.dw_error
	code := C.dw_image_close(image.handle, &err)
	C.dw_image_free(image.handle)
	image.handle = nil
	return failed(code, err)
}

// WriteFile creates a file or replaces its contents.
func (image *Image) WriteFile(path string, data []byte) error {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var err *C.dw_error
	var first *C.uint8_t
	if len(data) > 0 {
		first = (*C.uint8_t)(&data[0])
	}
	code := C.dw_write_file(image.handle, name, first, C.size_t(len(data)), &err)
	return failed(code, err)
}

// Names lists a directory.
func (image *Image) Names(path string) (names []string, failure error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var dir *C.dw_dir
	var err *C.dw_error
	if failure = failed(C.dw_dir_open(image.handle, name, &dir, &err), err); failure != nil {
		return nil, failure
	}
	defer C.dw_dir_free(dir)
	for {
		var entry *C.dw_entry
		code := C.dw_dir_next(dir, &entry, &err)
		if failure = failed(code, err); failure != nil || entry == nil {
			return names, failure
		}
		names = append(names, C.GoStringN(entry.name, C.int(entry.name_len)))
	}
}

// File is an open file: an io.ReaderAt.
type File struct{ handle *C.dw_file }

// Open opens a file for reading.
func (image *Image) Open(path string) (*File, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	file, err := &File{}, (*C.dw_error)(nil)
	code := C.dw_file_open(image.handle, name, C.DW_READ, 0, &file.handle, &err)
	return file, failed(code, err)
}

// ReadAt reads from an offset.
func (file *File) ReadAt(buffer []byte, offset int64) (int, error) {
	if len(buffer) == 0 {
		return 0, nil
	}
	var count C.size_t
	var err *C.dw_error
	code := C.dw_pread(file.handle, (*C.uint8_t)(&buffer[0]), C.size_t(len(buffer)), C.uint64_t(offset), &count, &err)
	if failure := failed(code, err); failure != nil {
		return 0, failure
	}
	if int(count) < len(buffer) {
		return int(count), io.EOF
	}
	return int(count), nil
}

// Close frees the file.
func (file *File) Close() { C.dw_file_free(file.handle) }

// Findings returns the number of findings of a check.
func Findings(path string) (uint64, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var report C.dw_check_report
	var err *C.dw_error
	code := C.dw_check(name, nil, nil, &report, &err)
	return uint64(report.findings), failed(code, err)
}

func run(path string) error {
	image, err := Create(path, 32<<20)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	failures := make(chan error, 100)
	for i := 0; i < 100; i++ {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			failures <- image.WriteFile(fmt.Sprintf("/file %d", i), []byte(fmt.Sprintf("line one\nfile %d\n", i)))
		}(i)
	}
	all.Wait()
	for i := 0; i < 100; i++ {
		if err := <-failures; err != nil {
			return err
		}
	}
	names, err := image.Names("/")
	if err != nil {
		return err
	}
	if len(names) != 101 { // lost+found is one.
		return fmt.Errorf("%d names, and not 101", len(names))
	}
	if _, err := image.Open("/nowhere"); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("a file that is not there: %v", err)
	}
	file, err := image.Open("/file 42")
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(io.NewSectionReader(file, 0, 1<<20))
	last := ""
	for lines.Scan() {
		last = lines.Text()
	}
	file.Close()
	if lines.Err() != nil || last != "file 42" {
		return fmt.Errorf("the last line is %q: %v", last, lines.Err())
	}
	if err := image.Close(); err != nil {
		return err
	}
	findings, err := Findings(path)
	if err == nil && findings > 0 {
		err = fmt.Errorf("%d findings", findings)
	}
	return err
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run . NEW_IMAGE")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("go: ok")
}
