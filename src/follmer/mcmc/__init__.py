"""What several rooms use to move points: HMC, tempered SMC, climbs to modes, resampling."""
