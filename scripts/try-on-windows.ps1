# Tries the program on Windows: lists disks, builds an image, reads, changes and checks it, and serves it by WebDAV.
# Prints PASS or FAIL for each step, and ends with 1 if a step failed. A disk is only read, and only on request.
#
#   powershell -ExecutionPolicy Bypass -File scripts\try-on-windows.ps1 [-Program FILE] [-Disk N -Partition N]
#
# Program is target\release\diskwright.exe by default. Listing and reading disks needs an administrator.
param(
    [string]$Program = 'target\release\diskwright.exe',
    [int]$Disk = -1,
    [int]$Partition = 1
)
if (-not (Test-Path $Program)) {
    Write-Output "try-on-windows: no program at $Program; build it first"
    exit 2
}
$Program = (Resolve-Path $Program).Path
$scratch = Join-Path ([IO.Path]::GetTempPath()) ([IO.Path]::GetRandomFileName())
New-Item -ItemType Directory $scratch | Out-Null
Push-Location $scratch
$script:failed = 0

# Runs the program. A status other than 0 is an error.
function Run {
    $out = & $Program @args 2>&1 | Out-String
    if ($LASTEXITCODE -ne 0) { throw "$args : status $LASTEXITCODE : $out" }
    $out.Trim()
}

function Expect([string]$Expected, [string]$Found) {
    if ($Found -ne $Expected) { throw "expected '$Expected', found '$Found'" }
}

function Step([string]$Name, [scriptblock]$Work) {
    try {
        & $Work | Out-Null
        Write-Output "PASS $Name"
    } catch {
        Write-Output "FAIL ${Name}: $_"
        $script:failed = 1
    }
}

$server = $null
try {
    New-Item -ItemType Directory source | Out-Null
    [IO.File]::WriteAllText("$scratch\source\greeting", 'hello')
    Step 'list disks' { Run devices }
    Step 'list all disks as JSON' { Run devices --all --json | ConvertFrom-Json }
    foreach ($fs in 'ext4', 'xfs') {
        $image = "image.$fs"
        $small = if ($fs -eq 'xfs') { @('--small') } else { @() }
        Step "build $fs" { Run build source $image --fs $fs --size 64M @small }
        Step "read $fs" { Expect 'hello' (Run cat $image /greeting) }
        Step "change $fs" { Run cp 'source\greeting' "${image}:/copy" }
        Step "check $fs" { Run check $image }
    }
    Step 'start WebDAV' {
        $script:server = Start-Process $Program -ArgumentList 'serve', 'image.ext4', '--webdav' -PassThru `
            -WindowStyle Hidden -RedirectStandardOutput addresses -RedirectStandardError server.out
        for ($i = 0; $i -lt 100 -and -not (Get-Content addresses); $i++) { Start-Sleep -Milliseconds 100 }
        if (-not (Get-Content addresses)) { throw (Get-Content server.out | Out-String) }
    }
    Step 'read and write by WebDAV' {
        $address = @(Get-Content addresses)[0]
        Expect 'hello' (& curl.exe -fsS "${address}greeting")
        & curl.exe -fsS -T 'source\greeting' "${address}uploaded"
        Expect 'hello' (& curl.exe -fsS "${address}uploaded")
    }
    if ($Disk -ge 0) {
        $path = "\\.\PhysicalDrive$Disk"
        Step "properties of $path" { Run info $path --partition $Partition }
        Step "list $path" { Run ls $path / --partition $Partition }
    }
} finally {
    if ($server) { Stop-Process $server -ErrorAction SilentlyContinue; $server.WaitForExit() }
    Pop-Location
    Remove-Item -Recurse -Force $scratch
}
exit $script:failed
