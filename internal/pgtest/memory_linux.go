package pgtest

import "syscall"

const (
	inMemory   = "/dev/shm"
	enoughFree = 4 << 30 // bytes
)

// memory is where files are in the memory of the machine, empty where there is not enough. A database is some 300 files, and
// ext4 passes over the inodes of files that were just removed: to make those of each test was up to half of a package's processor time.
func memory() string {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(inMemory, &fs); err != nil || uint64(fs.Bsize)*fs.Bavail < enoughFree {
		return ""
	}
	return inMemory
}
