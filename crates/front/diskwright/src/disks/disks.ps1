$ErrorActionPreference = 'Stop'
[Console]::OutputEncoding = New-Object System.Text.UTF8Encoding $false
$disks = @(Get-Disk | ForEach-Object {
    $disk = $_
    $parts = @(Get-Partition -DiskNumber $disk.Number -ErrorAction SilentlyContinue | ForEach-Object {
        $volume = $_ | Get-Volume -ErrorAction SilentlyContinue
        [pscustomobject]@{
            Offset = $_.Offset
            Size = $_.Size
            AccessPaths = [string[]]@($_.AccessPaths)
            FileSystem = [string]$volume.FileSystem
        }
    })
    [pscustomobject]@{
        Number = $disk.Number
        FriendlyName = [string]$disk.FriendlyName
        Size = $disk.Size
        LogicalSectorSize = $disk.LogicalSectorSize
        IsBoot = $disk.IsBoot
        IsSystem = $disk.IsSystem
        IsReadOnly = $disk.IsReadOnly
        Partitions = $parts
    }
})
ConvertTo-Json -Depth 5 -Compress -InputObject $disks
